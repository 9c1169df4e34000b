"""How an agent reaches the sandbox that a resources server opened for its session."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DirectSandboxConnection(_Strict):
    """The provider's block of the configuration, and the descriptor for `AsyncSandbox.connect`."""

    kind: Literal["direct"] = "direct"
    provider_config_ref: str | dict[str, Any]  #: the name of a block, or the block itself
    descriptor: dict[str, Any]


class SandboxAccess(_Strict):
    """A running sandbox, and the folder in which the agent works."""

    connection: DirectSandboxConnection
    workdir: str | None = None
