"""The contract of a provider: any object with these methods opens sandboxes for `AsyncSandbox`.

A provider has `name` and the methods of `SandboxProvider`. The other protocols are optional abilities, which
`AsyncSandbox` asks for when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nemo_gym.sandbox.providers._types import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    resources_of,
)

__all__ = [
    "ConnectableProvider",
    "SandboxCreateError",
    "SandboxEndpoint",
    "SandboxExecResult",
    "SandboxHandle",
    "SandboxProvider",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "SupportsSandboxEndpoint",
    "SupportsSandboxNetwork",
    "SupportsSandboxPause",
    "resources_of",
]


@runtime_checkable
class SandboxProvider(Protocol):
    """Opens sandboxes and runs commands in them."""

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """A new sandbox. Raises `SandboxCreateError`."""

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a shell command."""

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file of this machine into the sandbox."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file of the sandbox to this machine."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """The state of the sandbox."""

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox. May be called twice."""

    async def aclose(self) -> None:
        """Release what the provider itself holds. Sandboxes that can outlive it stay."""


@runtime_checkable
class SupportsSandboxEndpoint(Protocol):
    """A provider whose sandboxes can serve ports."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Where a port of the sandbox is reached."""


@runtime_checkable
class SupportsSandboxPause(Protocol):
    """A provider that can stop the clock of a sandbox."""

    async def pause(self, handle: SandboxHandle) -> None:
        """Stop all processes of the sandbox, and keep them."""

    async def resume(self, handle: SandboxHandle) -> None:
        """Let them go on."""


@runtime_checkable
class SupportsSandboxNetwork(Protocol):
    """A provider whose sandboxes can reach each other by name.

    A sandbox joins a network through `provider_options`: `{"network": NETWORK, "network_alias": NAME}`.
    """

    async def create_network(self, name: str) -> str:
        """Make a network, and return the text that specs name it by."""

    async def remove_network(self, network: str) -> None:
        """Remove a network."""


@runtime_checkable
class ConnectableProvider(Protocol):
    """A provider whose sandboxes can be handed to another process."""

    async def serialize_handle(self, handle: SandboxHandle) -> dict[str, Any]:
        """What `connect` needs to find the sandbox again, as JSON."""

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """The sandbox of a descriptor. Raises `SandboxCreateError` if it is gone."""
