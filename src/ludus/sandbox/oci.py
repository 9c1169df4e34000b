"""Sandboxes from images, by runc: a userland of their own, in new namespaces of every kind, without network.

Programs are root inside, without any capability: they own the files of the image and may change them. Outside they are
a user who owns nothing. Their files lie in memory, and are gone with the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ludus.runtime.threads import in_thread
from ludus.sandbox.features import require
from ludus.sandbox.mounts import sources
from ludus.sandbox.oci_bundle import FOLDERS, container_environment, writable_folders, write_bundle
from ludus.sandbox.oci_images import ImageStore
from ludus.sandbox.private_folders import PrivateFolder, remove
from ludus.sandbox.protocol import ExecResult, Program, SandboxError, SandboxSpec
from ludus.sandbox.stage import CONTAINER_USER, Stage, open_stage
from ludus.sandbox.supervised import SupervisedSandbox
from ludus.sandbox.supervised_open import FolderProvider, removed_on_error
from ludus.sandbox.supervised_start import setup_message, supervisor_command

_PROGRAMS = ("runc", "unshare", "setpriv", "tar", "mount")


class OciProvider(FolderProvider):
    """Opens sandboxes of images."""

    name = "oci"
    about = "an image of your own by runc: namespaces, seccomp, no capabilities, no network"
    package = "runc"
    program = "runc"
    lacks = frozenset({"no_image", "packages", "folders"})

    @classmethod
    def problem(cls) -> str | None:
        """Why it cannot be used on this machine, or None if a container of every feature starts."""
        for program in _PROGRAMS:
            if shutil.which(program) is None:
                return f"{program} is not installed"
        folder: PrivateFolder | None = None
        try:
            stage = open_stage()
            folder = PrivateFolder("oci")
            bundle = folder.make(*FOLDERS, "image", owner=CONTAINER_USER if os.geteuid() == 0 else None)
            with _spawn(bundle, SandboxSpec(), str(bundle / "image"), "raise SystemExit(0)", stage) as trial:
                _, words = trial.communicate(timeout=60)
            stage.close()
        except (OSError, SandboxError, subprocess.TimeoutExpired) as error:
            return f"runc does not start: {error}"
        finally:
            if folder is not None:
                folder.close()
        if trial.returncode == 0:
            return None
        reason = " ".join(words.decode(errors="replace").split())[-300:]
        return f"runc cannot make a container: {reason or trial.returncode}"

    def __init__(self, cache: Path | None = None) -> None:
        super().__init__()
        self._images = ImageStore(cache)

    async def check(self, spec: SandboxSpec) -> None:
        """Find and unpack the image."""
        if spec.image is not None:
            await self._images.get(spec.image)

    async def open(self, spec: SandboxSpec) -> OciSandbox:
        """A new sandbox."""
        require(self, spec)
        assert spec.image is not None
        image = await self._images.get(spec.image)
        folder, stage = await self._new_folder(*FOLDERS, owner=CONTAINER_USER)
        below = str(image.below) if image.below is not None else None
        await stage.show(sources(spec.mounts), shifted=below)
        setup = setup_message(spec, writable_folders(), [], env=container_environment(spec, image.env), preload=[])
        setup["limits"]["files"] = sys.maxsize  # the file systems in memory have a limit of their own

        def spawn(control: socket.socket) -> subprocess.Popen[bytes]:
            with removed_on_error(folder):
                return _spawn(folder, spec, str(image.root), supervisor_command()[-1], stage, control, below)

        async def first(process: subprocess.Popen[bytes]) -> int:
            # on a busy machine the supervisor is ready before runc has written the file
            while not (folder / "state/pid").exists() and process.poll() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return int((folder / "state/pid").read_text())

        return await self._start(partial(OciSandbox, folder), spec, setup, spawn, first)


class OciSandbox(SupervisedSandbox):
    """A container whose first process is our supervisor."""

    def __init__(self, folder: Path, *args: Any) -> None:
        super().__init__(*args)
        self.folder = folder
        self._first: int | None = None  # a descriptor of the first process inside

    def confine(self, pid: int) -> None:
        """Put the first process inside into the control groups."""
        self._first = os.pidfd_open(pid)
        super().confine(pid)

    async def run(self, program: Program) -> ExecResult:
        """Run a program. A Python program runs with the image's own `python3`."""
        return await super().run(await self._as_command(program))

    async def reset(self) -> bool:
        """Only a sandbox that was never used is as new: programs may change every file of the image."""
        return not self.gone and self.uses == 0

    async def close(self) -> None:
        """End every process and remove every file. runc cleans up when the first process has ended."""
        first, self._first = self._first, None
        if first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(first, signal.SIGKILL)
            os.close(first)
        await super().close()
        await in_thread(remove, self.folder)


def _spawn(
    folder: Path,
    spec: SandboxSpec,
    image: str,
    bootstrap: str,
    stage: Stage,
    control: socket.socket | None = None,
    below: str | None = None,
) -> subprocess.Popen[bytes]:
    """Write the bundle and start the command that runs it, with an environment that has nothing of ours."""
    fds: list[int] = []
    try:
        command = write_bundle(folder, spec, image, bootstrap, stage, below)
        return subprocess.Popen(
            [*stage.command(fds, CONTAINER_USER), *command],
            stdin=control.fileno() if control is not None else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    finally:
        for fd in fds:
            os.close(fd)
