"""The head server's key in the configuration, and its address."""

from __future__ import annotations

from pydantic import BaseModel

#: The head server's key in the configuration that a trainer passes.
HEAD_SERVER_KEY_NAME = "head_server"


class BaseServerConfig(BaseModel):
    """The address of a server."""

    host: str
    port: int
