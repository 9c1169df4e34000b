"""Providers that Ludus does not speak: their names are known, so that the error says what to use in their place."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)


class _MissingProvider:
    """Takes any settings, and refuses to create a sandbox."""

    name: ClassVar[str]
    needs: ClassVar[str]

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Say what is missing."""
        self._refuse()

    async def exec(self, handle: SandboxHandle, command: str, **options: Any) -> SandboxExecResult:
        """There is no sandbox."""
        self._refuse()

    async def upload_file(self, handle: SandboxHandle, source_path: Any, target_path: str) -> None:
        """There is no sandbox."""
        self._refuse()

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Any) -> None:
        """There is no sandbox."""
        self._refuse()

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """There is no sandbox."""
        return SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """There is nothing to close."""

    def problem(self) -> str:
        """Why it cannot work, and what can."""
        instead = "use Ludus's sandboxes, {ludus: {}}, or docker, apptainer, daytona, e2b"
        return f"sandbox provider {self.name} needs {self.needs}, which Ludus does not call: {instead}"

    def _refuse(self) -> NoReturn:
        raise SandboxCreateError(self.problem())


class EcsFargateProvider(_MissingProvider):
    """Tasks of Amazon's ECS."""

    name = "ecs_fargate"
    needs = "an AWS account"


class EnrootProvider(_MissingProvider):
    """Containers of NVIDIA's enroot."""

    name = "enroot"
    needs = "the program enroot"


class OpenSandboxProvider(_MissingProvider):
    """Sandboxes of a server of OpenSandbox."""

    name = "opensandbox"
    needs = "a server of OpenSandbox"


class OpenShellProvider(_MissingProvider):
    """Sandboxes of NVIDIA's OpenShell."""

    name = "openshell"
    needs = "a gateway of OpenShell"
