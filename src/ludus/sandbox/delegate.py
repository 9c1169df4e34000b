"""A sandbox that hands its calls to another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.sandbox.protocol import READ_BYTES, ExecResult, Program, Sandbox


class Delegate(Sandbox):
    """A sandbox whose calls another one answers."""

    @abstractmethod
    async def _target(self) -> Sandbox:
        """The sandbox that answers."""

    async def run(self, program: Program) -> ExecResult:
        """Run a program."""
        return await (await self._target()).run(program)

    async def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """The content of a file."""
        return await (await self._target()).read(path, max_bytes)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file."""
        await (await self._target()).write(path, data, executable=executable)

    async def work_on_files(
        self, operation: str, request: Mapping[str, Any], stdin: bytes = b"", limit: int | None = None
    ) -> ExecResult:
        """Work on files."""
        return await (await self._target()).work_on_files(operation, request, stdin, limit)

    async def end_processes(self) -> None:
        """End every process that programs left behind."""
        await (await self._target()).end_processes()

    async def snapshot(self) -> bytes:
        """The files under HOME."""
        return await (await self._target()).snapshot()

    async def restore(self, snapshot: bytes) -> None:
        """Unpack a snapshot."""
        await (await self._target()).restore(snapshot)

    async def allow_hosts(self, hosts: Sequence[str]) -> None:
        """Let programs reach these hosts."""
        await (await self._target()).allow_hosts(hosts)

    async def deny_hosts(self) -> None:
        """Close what `allow_hosts` opened."""
        await (await self._target()).deny_hosts()

    async def route(self, port: int) -> str:
        """Let programs reach a port of this machine."""
        return await (await self._target()).route(port)

    async def close_routes(self) -> None:
        """Close what `route` opened."""
        await (await self._target()).close_routes()
