"""What providers share whose sandboxes have our supervisor inside: starting one, and closing all."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ludus.runtime.threads import in_thread
from ludus.sandbox.cgroups import ControlGroup
from ludus.sandbox.private_folders import PrivateFolder, remove
from ludus.sandbox.protocol import SandboxError, SandboxProvider, SandboxSpec
from ludus.sandbox.stage import Stage, open_stage
from ludus.sandbox.supervised import SupervisedSandbox

S = TypeVar("S", bound=SupervisedSandbox)


class SupervisedProvider(SandboxProvider):
    """Starts supervisors."""

    #: The program that makes a sandbox, for messages.
    program: ClassVar[str]

    def __init__(self) -> None:
        self._opened: set[SupervisedSandbox] = set()

    async def _start(
        self,
        make: Callable[..., S],
        spec: SandboxSpec,
        setup: dict[str, Any],
        spawn: Callable[[socket.socket], subprocess.Popen[bytes]],
        first: Callable[[subprocess.Popen[bytes]], Awaitable[int]],
    ) -> S:
        """A new sandbox. `spawn` gets the supervisor's end of the socket; `first` finds the first process inside."""
        group = ControlGroup(spec.limits.memory_mb << 20, spec.limits.processes + 2)
        ours, theirs = socket.socketpair()
        try:
            process = spawn(theirs)
        except BaseException as error:
            ours.close()
            group.remove()
            if isinstance(error, OSError):
                raise SandboxError(f"cannot start {self.program}: {_words(error)}") from error
            raise
        finally:
            theirs.close()
        sandbox = make(spec, process, ours, group, self._opened.discard)
        self._opened.add(sandbox)
        try:
            await sandbox.start(setup)
            sandbox.confine(await first(process))
            await sandbox.write_files(spec.files)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._opened)))


class FolderProvider(SupervisedProvider):
    """Each of its sandboxes has a folder on the host, which is removed with it."""

    def __init__(self) -> None:
        super().__init__()
        self._folder: PrivateFolder | None = None
        self._stage: Stage | None = None
        self._opening = asyncio.Lock()  # two sandboxes that open at once share one folder

    async def _new_folder(self, *names: str, owner: int | None) -> tuple[Path, Stage]:
        """A folder for one sandbox, with folders of these names, and how programs are started."""
        try:
            async with self._opening:
                if self._folder is None:
                    self._folder = await in_thread(PrivateFolder, self.name, self._on_orphan)
                if self._stage is None:
                    self._stage = await in_thread(open_stage)
            return self._folder.make(*names, owner=owner if os.geteuid() == 0 else None), self._stage
        except OSError as error:
            raise SandboxError(f"sandbox provider {self.name} cannot make a folder: {_words(error)}") from error

    def _on_orphan(self, folder: Path) -> None:
        """Called before the folder of a dead owner is removed."""

    async def close(self) -> None:
        """Close every sandbox that is still open, and remove all folders."""
        await super().close()
        folder, self._folder = self._folder, None
        if folder is not None:
            await in_thread(folder.close)
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()


@contextmanager
def removed_on_error(folder: Path) -> Iterator[None]:
    """Remove a folder if what uses it does not start."""
    try:
        yield
    except BaseException:
        remove(folder)
        raise


def _words(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror or error)
