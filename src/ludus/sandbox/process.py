"""Sandboxes without namespaces: limits, a user of its own, Landlock and seccomp, on the file system of the host.

It works where nothing can be installed and no namespace can be made. It is not for hostile code: programs see the
processes and the system of the host, and share its disk without a limit. So it is taken only if a user names it. From
Linux 6.12 on, Landlock keeps a program's signals from its supervisor. Before, a program can end it, and the rollout
fails.
"""

from __future__ import annotations

import os
import platform
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from ludus.runtime.threads import in_thread
from ludus.sandbox import landlock, packages, private_folders, seccomp
from ludus.sandbox.features import require
from ludus.sandbox.libpython import library_variable, python_library
from ludus.sandbox.mounts import sources
from ludus.sandbox.private_folders import remove
from ludus.sandbox.protocol import ATTACKS, SandboxError, SandboxSpec
from ludus.sandbox.stage import Stage, missing_program, open_to_all
from ludus.sandbox.supervised import SupervisedSandbox
from ludus.sandbox.supervised_open import FolderProvider, removed_on_error
from ludus.sandbox.supervised_start import program_environment, setup_message, supervisor_command

#: Where we are root, each sandbox has a user of its own from this range.
_FIRST_USER, _USERS = 1_700_000_000, 400_000_000

_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/proc", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/passwd", "/etc/group", "/etc/hosts"),
    *("/etc/nsswitch.conf", "/etc/resolv.conf"),
)
_PREFIX = os.path.realpath(sys.base_prefix)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _protects_supervisor() -> bool:
    return platform.system() == "Linux" and landlock.landlock_version() >= 6


class ProcessProvider(FolderProvider):
    """Opens a sandbox as a plain process with few rights."""

    name = "process"
    about = "rlimits, Landlock, seccomp, a folder of its own; no namespaces"
    program = "a process for the sandbox"
    isolates = False
    lacks = frozenset({"image", "folders", "unix_sockets"})
    claims = ATTACKS - {"disk", "files", "proc", *(() if _protects_supervisor() else ("left_behind", "supervisor"))}

    @classmethod
    def problem(cls) -> str | None:
        """Why it cannot be used on this machine, or None."""
        if platform.system() != "Linux":
            return f"it needs Linux, and this is {platform.system()}"
        version = landlock.landlock_version()
        if version == 0:
            return "this kernel has no Landlock"
        if version < 6 and os.geteuid() != 0:
            return "without root it needs Linux 6.12, whose Landlock keeps signals inside"
        if seccomp.program() is None:
            return f"there is no seccomp filter for {platform.machine()}"
        return missing_program(*private_folders.PROGRAMS, *(("setpriv",) if os.geteuid() == 0 else ()))

    async def open(self, spec: SandboxSpec) -> ProcessSandbox:
        """A new sandbox."""
        require(self, spec)
        _check_mounts(spec)
        user = None
        if os.geteuid() == 0:  # drawn at random, so that other programs of ours do not take the same
            user = random.SystemRandom().randrange(_FIRST_USER, _FIRST_USER + _USERS)
        folder, stage = await self._new_folder("home", "tmp", owner=user)

        def spawn(control: socket.socket) -> subprocess.Popen[bytes]:
            with removed_on_error(folder):
                return _spawn(spec, folder, user, stage, control)

        async def first(process: subprocess.Popen[bytes]) -> int:
            return process.pid

        setup = _setup(spec, folder, user, stage.visible(_PREFIX))
        make = partial(ProcessSandbox, folder, user)
        return await self._start(make, spec, setup, spawn, first)

    def _on_orphan(self, folder: Path) -> None:
        """End the processes of a dead owner."""
        if os.geteuid() == 0:
            for home in folder.glob("*/home"):
                _end_user(home.lstat().st_uid)


class ProcessSandbox(SupervisedSandbox):
    """A sandbox in a folder of the host: HOME is that folder."""

    def __init__(self, folder: Path, user: int | None, *args: Any) -> None:
        super().__init__(*args)
        self.folder = folder
        self.home = str(folder / "home")
        self.user = user

    async def start(self, setup: dict[str, Any]) -> None:
        """Wait until the supervisor is ready. Its programs have the same user, and must not reach it."""
        code = seccomp.protecting(self.pid) if _protects_supervisor() else None
        await super().start(setup | {"guard": code.hex() if code is not None else None})

    async def close(self) -> None:
        """End every process and remove the folder."""
        if not self.gone:
            self._end_processes()
        await super().close()
        self._end_processes()
        await in_thread(remove, self.folder)

    async def route(self, port: int) -> str:
        """With the host's network programs reach every port; without it they get no socket at all."""
        if not self.spec.network:
            raise SandboxError("sandbox provider process has no route to one port: use bubblewrap or oci")
        return await super().route(port)

    def _end_processes(self) -> None:
        """End all processes of the control group and of the user, in case a program ended the supervisor first."""
        for folder in self._group.folders:
            with suppress(OSError, ValueError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
        if self.user is not None:
            _end_user(self.user)


def _spawn(
    spec: SandboxSpec, folder: Path, user: int | None, stage: Stage, control: socket.socket
) -> subprocess.Popen[bytes]:
    """Start the supervisor, which gives up its rights before it does anything else."""
    seen = stage.visible(_PREFIX)
    interpreter, *options, bootstrap = supervisor_command()
    wanted = {
        "read": [*_READABLE, seen, str(folder), *_link(spec, folder, stage), *sources(spec.mounts)],
        "write": [*_DEVICES, str(folder / "home"), str(folder / "tmp")],
        "network": spec.network,
        "filters": [rules.hex() for rules in _filters(spec) if rules is not None],
    }
    source = f"{_launcher()}\ngive_up_rights({wanted!r})\n{bootstrap}"
    python = interpreter.replace(_PREFIX, seen, 1)
    fds: list[int] = []
    try:
        return subprocess.Popen(
            [*stage.command(fds, user), python, *options, source],
            stdin=control.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            env={"PATH": "/usr/bin:/bin", "PYTHONHOME": seen, **library_variable(str(folder / "libraries"))},
        )
    finally:
        for fd in fds:
            os.close(fd)


def _check_mounts(spec: SandboxSpec) -> None:
    """Programs see the folders of the host where they are, so a mount can be nowhere else."""
    for mount in spec.mounts:
        cannot = f"sandbox provider process cannot mount {mount.source}"
        if mount.place != mount.source:
            raise SandboxError(f"{cannot} at {mount.place}: programs find folders where they are")
        if os.geteuid() == 0 and not open_to_all(os.path.realpath(mount.source)):
            raise SandboxError(f"{cannot}: other users than root may not read it")


def _filters(spec: SandboxSpec) -> Iterator[bytes | None]:
    yield seccomp.program()
    if not spec.network:
        yield seccomp.no_sockets()


def _link(spec: SandboxSpec, folder: Path, stage: Stage) -> Iterator[str]:
    """Link the packages of the spec and the library of Python into the folder, and return where they are."""
    library = python_library()
    for name, places in (
        ("packages", packages.places(spec.packages)),
        ("libraries", [Path(library)] if library is not None else []),
    ):
        if places:
            (folder / name).mkdir(0o755)
        for place in places:
            seen = stage.visible(str(place))
            (folder / name / place.name).symlink_to(seen)
            yield seen


def _setup(spec: SandboxSpec, folder: Path, user: int | None, prefix: str) -> dict[str, Any]:
    home, tmp, modules = str(folder / "home"), str(folder / "tmp"), str(folder / "packages")
    environment = program_environment(spec)
    environment |= {"HOME": home, "TMPDIR": tmp, "PATH": environment["PATH"].replace(_PREFIX, prefix, 1)}
    environment |= library_variable(str(folder / "libraries"))
    if spec.packages:
        environment["PYTHONPATH"] = modules
    message = setup_message(spec, [home, tmp], [modules] if spec.packages else [])
    limits = message["limits"] | {"files": sys.maxsize}  # the disk is shared: its count of files says nothing
    if user is None:
        limits["processes"] += _processes_of_this_user()
    return message | {"home": home, "env": {**environment, **spec.env}, "own_user": user is not None, "limits": limits}


def _processes_of_this_user() -> int:
    """The kernel counts all processes and threads of a user, not only those of the sandbox."""
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                count += len(os.listdir(entry / "task"))
    return count


def _end_user(user: int) -> None:
    """End every process of a user. Only for the users that we made."""
    if _FIRST_USER <= user < _FIRST_USER + _USERS:
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        with suppress(OSError):
            subprocess.run([*switch, "sh", "-c", "kill -KILL -1"], capture_output=True, check=False)


@cache
def _launcher() -> str:
    return Path(landlock.__file__).read_text(encoding="utf-8")
