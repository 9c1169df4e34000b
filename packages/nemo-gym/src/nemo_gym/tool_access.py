"""How an agent reaches tools: by HTTP at a server, or by MCP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field

from nemo_gym.episode_types import plain_name

_Name = Annotated[str, AfterValidator(plain_name)]


class DirectHTTPToolAccess(BaseModel):
    """Tools at `BASE_URL/TOOL`, with the cookies and headers of a session."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["direct_http"] = "direct_http"
    name: _Name
    required: bool
    base_url: AnyHttpUrl
    cookies: dict[str, str] = {}
    headers: dict[str, str] = {}


class MCPStreamableHTTPConnection(BaseModel):
    """The address of an MCP server."""

    model_config = ConfigDict(extra="forbid")

    transport: Literal["streamable_http"] = "streamable_http"
    url: AnyHttpUrl
    headers: dict[str, str] = {}


class MCPToolAccess(BaseModel):
    """Tools of an MCP server."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["mcp"] = "mcp"
    name: _Name
    required: bool
    connection: MCPStreamableHTTPConnection


ToolAccess = Annotated[DirectHTTPToolAccess | MCPToolAccess, Field(discriminator="kind")]


def _unique(accesses: list[ToolAccess]) -> list[ToolAccess]:
    names = [access.name for access in accesses]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"several tool accesses have the name {repeated[0]!r}: rename one")
    return accesses


#: Accesses with different names.
ToolAccesses = Annotated[list[ToolAccess], AfterValidator(_unique)]
