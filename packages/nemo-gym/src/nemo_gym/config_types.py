"""The address of a server."""

from __future__ import annotations

from pydantic import BaseModel


class BaseServerConfig(BaseModel):
    """The address of a server."""

    host: str
    port: int
