"""Sandboxes by bubblewrap: new namespaces of every kind, a read-only system, no network, no capabilities.

The root is a file system in memory that holds `/usr` and little else of the host, all read-only. HOME, `/tmp` and
`/dev/shm` are file systems in memory with a limited size. Nothing is left on the host when a sandbox ends.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

from ludus.sandbox import packages, seccomp
from ludus.sandbox.features import require
from ludus.sandbox.libpython import python_library
from ludus.sandbox.mounts import hidden_places, sources
from ludus.sandbox.protocol import HOME, SandboxError, SandboxSpec
from ludus.sandbox.stage import Stage, library_apart, open_stage, python_prefix
from ludus.sandbox.supervised import SupervisedSandbox
from ludus.sandbox.supervised_open import SupervisedProvider
from ludus.sandbox.supervised_start import LIBRARIES, PACKAGES, program_environment, setup_message, supervisor_command

#: The user id inside, and the folders that programs may write to, with their share of the disk limit.
_USER_INSIDE = 1000
_WRITABLE = {HOME: 0.5, "/tmp": 0.4, "/dev/shm": 0.1}

#: Other paths that belong to the programs' user. A reset sets their mode and times, and removes nothing.
_KEPT = ("/dev/pts", "/dev/pts/ptmx")

#: Kernel settings that a program could change: those of its namespaces, which would stay for the next user, and the
#: pressure triggers. All others belong to the host's root, who is nobody inside, and every mount costs time.
_KERNEL_SETTINGS = ("/proc/sys", "/proc/pressure")

#: Host paths that a sandbox sees, and files that are copied: a small file costs less than a mount.
_SYSTEM = ("/usr", "/etc/alternatives")
_COPIED = ("/etc/ld.so.cache", "/etc/localtime")
_WITH_NETWORK = ("/etc/resolv.conf", "/etc/ssl/certs")
_LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_FILES = {
    "/etc/passwd": f"root:x:0:0::/root:/usr/sbin/nologin\nuser:x:{_USER_INSIDE}:{_USER_INSIDE}::{HOME}:/bin/sh\n",
    "/etc/group": f"root:x:0:\nuser:x:{_USER_INSIDE}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class BubblewrapProvider(SupervisedProvider):
    """Opens sandboxes in new namespaces. Most of the time goes into the start of Python inside."""

    name = "bubblewrap"
    about = "namespaces, seccomp, the host's /usr read-only, no network"
    package = "bubblewrap"
    program = "bwrap"
    lacks = frozenset({"image"})

    @classmethod
    def problem(cls) -> str | None:
        """Why it cannot be used on this machine, or None if a sandbox of every feature starts."""
        if shutil.which("bwrap") is None:
            return "bwrap is not installed"
        fds: list[int] = []
        try:
            stage = open_stage()
            command = _command(SandboxSpec(), stage, None, fds, ["/bin/true"])
            ended = subprocess.run(command, capture_output=True, pass_fds=fds, env={}, timeout=30, check=False)
            stage.close()
        except (OSError, subprocess.TimeoutExpired, SandboxError) as error:
            return f"bwrap does not start: {error}"
        finally:
            for fd in fds:
                os.close(fd)
        if ended.returncode == 0:
            return None
        words = " ".join(ended.stderr.decode(errors="replace").split())
        return f"bwrap cannot make a sandbox: {words or ended.returncode}"

    def __init__(self) -> None:
        super().__init__()
        self._stage = open_stage()

    async def open(self, spec: SandboxSpec) -> SupervisedSandbox:
        """A new sandbox."""
        require(self, spec)
        setup = setup_message(spec, list(_WRITABLE), [PACKAGES] if spec.packages else [], kept=_KEPT)
        await self._stage.show(sources(spec.mounts))
        info = os.memfd_create("info")  # not a pipe: if our end were closed, SIGPIPE would kill bwrap halfway

        async def first(process: subprocess.Popen[bytes]) -> int:
            return int(json.loads(os.pread(info, 4096, 0))["child-pid"])

        try:
            return await self._start(
                SupervisedSandbox,
                spec,
                setup,
                spawn=lambda control: _spawn(spec, self._stage, info, control),
                first=first,
            )
        finally:
            os.close(info)

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        await super().close()
        self._stage.close()


def _spawn(spec: SandboxSpec, stage: Stage, info: int, control: socket.socket) -> subprocess.Popen[bytes]:
    """Start bwrap with an empty environment.

    The sandbox ends with its socket, also while it starts. `--die-with-parent` would kill bwrap while its child still
    waits for it, and leave that child behind.
    """
    fds = [os.dup(info)]
    try:
        return subprocess.Popen(
            _command(spec, stage, fds[0], fds, supervisor_command()),
            stdin=control.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            env=dict[str, str](),
        )
    finally:
        for fd in fds:
            os.close(fd)


def _command(spec: SandboxSpec, stage: Stage, info_end: int | None, fds: list[int], program: list[str]) -> list[str]:
    """The command that starts a program as the first of a sandbox."""
    return [*stage.command(fds), *_arguments(spec, stage, info_end, fds), "--", *program]


def _arguments(spec: SandboxSpec, stage: Stage, info_end: int | None, fds: list[int]) -> list[str]:
    """The arguments of bwrap. File descriptors that it must inherit are added to `fds`."""
    arguments = [
        *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--disable-userns", "--cap-drop", "ALL", "--uid", str(_USER_INSIDE), "--gid", str(_USER_INSIDE)),
        *("--hostname", "sandbox", "--new-session", "--as-pid-1", "--clearenv"),
        *(() if spec.network else ("--unshare-net",)),
        *_environment(spec),
        *_binds(spec, stage, fds),
        *("--proc", "/proc"),
        *(word for path in _KERNEL_SETTINGS if os.path.exists(path) for word in ("--ro-bind", path, path)),
        *("--dev", "/dev", "--remount-ro", "/dev"),
    ]
    for path, share in _WRITABLE.items():
        size = max(int((spec.limits.disk_mb << 20) * share), 1 << 16)
        arguments += ["--perms", "0700", "--size", str(size), "--tmpfs", path]
    arguments += ["--remount-ro", "/", "--chdir", HOME]
    if info_end is not None:
        arguments += ["--info-fd", str(info_end)]
    if (rules := seccomp.program()) is not None:
        arguments += ["--seccomp", str(_memory_file(rules, fds))]
    return arguments


def _environment(spec: SandboxSpec) -> Iterator[str]:
    for name, value in program_environment(spec).items():
        yield from ("--setenv", name, value)


def _binds(spec: SandboxSpec, stage: Stage, fds: list[int]) -> Iterator[str]:
    """The host paths that a sandbox sees, read-only."""
    for path in (*_SYSTEM, *python_prefix()):
        if os.path.exists(path):
            yield from ("--ro-bind", stage.visible(path), path)
    for link in _LINKS:
        if os.path.islink(link):
            yield from ("--symlink", os.readlink(link), link)
        elif os.path.isdir(link):
            yield from ("--ro-bind", link, link)
    for name in spec.folders:
        yield from ("--symlink", f"{HOME}/{name}", f"/{name}")
    for path in _WITH_NETWORK if spec.network else ():
        if os.path.exists(path):
            yield from ("--ro-bind", os.path.realpath(path), path)
    for path in _COPIED:
        if os.path.isfile(path):
            fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            yield from ("--perms", "0444", "--file", str(fds[-1]), path)
    for path, text in _FILES.items():
        yield from ("--perms", "0444", "--file", str(_memory_file(text.encode(), fds)), path)
    if (library := python_library()) is not None:
        inside = f"{LIBRARIES}/{os.path.basename(library)}"
        yield from ("--ro-bind", stage.visible(library), inside) if library_apart() else ("--symlink", library, inside)
    for place in packages.places(spec.packages):
        yield from ("--ro-bind", stage.visible(str(place)), f"{PACKAGES}/{place.name}")
    for mount in spec.mounts:
        yield from ("--ro-bind", stage.visible(os.path.realpath(mount.source)), mount.place)
    seen = [(path, path) for path in (*_SYSTEM, *python_prefix())]
    for hidden in hidden_places([*seen, *((mount.source, mount.place) for mount in spec.mounts)]):
        yield from ("--tmpfs", hidden, "--remount-ro", hidden)


def _memory_file(data: bytes, fds: list[int]) -> int:
    """A file in memory that bwrap can read through the returned descriptor."""
    fd = os.memfd_create("ludus")
    fds.append(fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
