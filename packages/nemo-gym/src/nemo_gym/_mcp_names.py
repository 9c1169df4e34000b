"""The names of NeMo Gym's tools over MCP, which servers and agents share."""

from __future__ import annotations

from pydantic import BaseModel

NEMO_GYM_MCP_SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
NEMO_GYM_MCP_METADATA_KEY = "mcp"
RESERVED_MCP_TOOL_NAMES = frozenset({"verify", "seed_session", "close_session", "aggregate_metrics", "mcp"})


class MCPServerMetadata(BaseModel):
    """How a session's tools are reached over MCP."""

    server_name: str
    url_path: str = "/mcp"
    transport: str = "http"
    headers: dict[str, str]
