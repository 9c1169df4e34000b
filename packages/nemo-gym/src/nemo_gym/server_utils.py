"""How trainers name the head server, and say where it is."""

from __future__ import annotations

from pydantic import BaseModel

#: The key of the head server in the configuration that a trainer hands over.
HEAD_SERVER_KEY_NAME = "head_server"


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    host: str
    port: int
