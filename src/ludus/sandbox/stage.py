"""How bubblewrap is started: as which user, and where this user finds the folders of the host that a sandbox sees.

Root becomes a user that owns nothing. This user cannot walk everywhere, not into `/root` for example, where Python may
be. Folders that it cannot reach are mounted where it can, in a mount namespace that only a descriptor of ours keeps
alive: the mounts are gone with this process, however it ends.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path

from ludus.runtime.threads import in_thread
from ludus.sandbox import shifted as shifted_mounts
from ludus.sandbox.libpython import python_library
from ludus.sandbox.protocol import SandboxError

#: The first user id that sandboxes get where we are root. Each has its own, so that no limit per user is shared.
_FIRST_USER, _USERS = 1_600_000_000, 1_000_000

#: Where we are root, containers and the files of images belong to this user. It owns nothing else.
CONTAINER_USER = 1_500_000_000

#: The programs that make root another user, and mount folders for it.
_ROOT_PROGRAMS = ("unshare", "nsenter", "sh", "mount", "mkdir")

#: How long mounting may take. It takes milliseconds, unless a folder is on a network file system that hangs.
MOUNT_SECONDS = 60.0

_MOUNTS = "/mnt"
_SCRIPT = (
    f"mount -t tmpfs -o mode=755 none {_MOUNTS} && n=0; "
    f'for path; do if [ -d "$path" ]; then mkdir {_MOUNTS}/$n; else : > {_MOUNTS}/$n; fi && '
    f'mount --bind "$path" {_MOUNTS}/$n && n=$((n+1)) || exit 1; done; '
    "echo ready; read -r wait"
)


class Stage:
    """For users who are not root: bwrap starts as it is, and finds folders where they are."""

    async def show(self, folders: Iterable[str], shifted: str | None = None) -> None:
        """Make folders visible that were not needed before. Root's files in `shifted` are those of containers."""

    def visible(self, path: str) -> str:
        """A path that leads to the same folder or file, and that the user of the sandbox may walk."""
        return path

    def shifted(self, folder: str) -> str:
        """Where a folder that was shown as `shifted` is."""
        return folder

    def command(self, fds: list[int], user: int | None = None) -> list[str]:
        """The command that starts bwrap. Descriptors that it must inherit are added to `fds`."""
        return []

    def close(self) -> None:
        """Forget the mounts."""


class RootStage(Stage):
    """For root: every sandbox is started as another user."""

    def __init__(self) -> None:
        self._users = itertools.cycle(range(_FIRST_USER, _FIRST_USER + _USERS))
        self._mounted = [folder for folder in _needed() if not open_to_all(folder)]
        self._shifted: list[str] = []  # folders whose files belong to the user of containers
        self._namespace = _namespace_with(self._mounted) if self._mounted else None
        self._showing = asyncio.Lock()

    async def show(self, folders: Iterable[str], shifted: str | None = None) -> None:
        """Mount the folders that the user of a sandbox cannot reach, in a new namespace with all earlier ones."""
        async with self._showing:
            hidden = [folder for folder in folders if not open_to_all(folder) and self.visible(folder) == folder]
            owned = [shifted] if shifted is not None and shifted not in self._shifted else []
            if hidden or owned:
                mounted, owned = [*self._mounted, *dict.fromkeys(hidden)], [*self._shifted, *owned]
                namespace = await in_thread(_namespace_with, mounted, owned)
                self.close()
                self._mounted, self._shifted, self._namespace = mounted, owned, namespace

    def shifted(self, folder: str) -> str:
        """Where a folder that was shown as `shifted` is mounted."""
        return f"{_MOUNTS}/{len(self._mounted) + self._shifted.index(folder)}"

    def visible(self, path: str) -> str:
        """The path itself, or the same below the folder where it is mounted."""
        for number, folder in enumerate(self._mounted):
            if path == folder or path.startswith(f"{folder}/"):
                return f"{_MOUNTS}/{number}{path.removeprefix(folder)}"
        return path

    def command(self, fds: list[int], user: int | None = None) -> list[str]:
        """Enter the mounts and become a user, or the next one."""
        number = str(next(self._users) if user is None else user)
        if self._namespace is None:
            return ["unshare", "--setuid", number, "--setgid", number]
        fds.append(os.dup(self._namespace))
        return ["nsenter", f"--mount=/proc/self/fd/{fds[-1]}", "--setuid", number, "--setgid", number]

    def close(self) -> None:
        """Forget the mounts."""
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None


def open_stage() -> Stage:
    """The stage for the user that we are."""
    return RootStage() if os.geteuid() == 0 else Stage()


def missing_program(*programs: str) -> str | None:
    """The problem with the first of these programs, or of those that root needs, that is not installed; else None."""
    for program in (*programs, *(_ROOT_PROGRAMS if os.geteuid() == 0 else ())):
        if shutil.which(program) is None:
            return f"{program} is not installed, or not on PATH"
    return None


@cache
def python_prefix() -> tuple[str, ...]:
    """The folder of Python, if it is not under `/usr`."""
    prefix = os.path.realpath(sys.base_prefix)
    return () if prefix == "/usr" or prefix.startswith("/usr/") else (prefix,)


def library_apart() -> tuple[str, ...]:
    """The library of Python, if it is neither under `/usr` nor in the folder of Python."""
    library = python_library()
    if library is None or any(library.startswith(f"{folder}/") for folder in ("/usr", *python_prefix())):
        return ()
    return (library,)


def _needed() -> list[str]:
    """The folders and files of the host that a sandbox may see, besides the system's."""
    packages = (os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    folders = (path for path in (*python_prefix(), *packages) if os.path.isdir(path))
    return list(dict.fromkeys((*folders, *library_apart())))


@lru_cache(maxsize=256)
def open_to_all(path: str) -> bool:
    """Whether any user may walk to a path and read it."""
    return (
        all(folder.stat().st_mode & 0o001 for folder in Path(path).parents) and os.stat(path).st_mode & 0o005 == 0o005
    )


def _namespace_with(folders: list[str], shifted: Sequence[str] = ()) -> int:
    """A descriptor of a mount namespace with these folders and files at `/mnt/0`, `/mnt/1` and so on."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SCRIPT, "sh", *folders, *shifted]
    late = threading.Event()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None

        def give_up() -> None:
            late.set()
            os.killpg(holder.pid, signal.SIGKILL)

        timer = threading.Timer(MOUNT_SECONDS, give_up)
        timer.start()
        try:
            if holder.stdout.readline() != b"ready\n":
                timed_out = f"timed out after {MOUNT_SECONDS:g} s (does a network file system hang?)"
                words = timed_out if late.is_set() else holder.stderr.read(500).decode(errors="replace")
                raise SandboxError(f"cannot mount folders for a sandbox: {' '.join(words.split())}")
            namespace = os.open(f"/proc/{holder.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            holder.communicate(b"\n")
        finally:
            timer.cancel()
    if shifted:
        places = [(folder, f"{_MOUNTS}/{number}") for number, folder in enumerate(shifted, start=len(folders))]
        enter = ["nsenter", f"--mount=/proc/self/fd/{namespace}", "--wd=/"]
        mount = [*enter, *shifted_mounts.command(CONTAINER_USER, places)]
        try:
            ended = subprocess.run(
                mount, pass_fds=[namespace], capture_output=True, text=True, check=False, timeout=MOUNT_SECONDS
            )
            problem = " ".join(ended.stderr.strip().splitlines()[-1:]) if ended.returncode else None
        except subprocess.TimeoutExpired:
            problem = f"timed out after {MOUNT_SECONDS:g} s"
        if problem is not None:
            os.close(namespace)
            raise SandboxError(f"cannot mount an image for its sandbox: {problem}")
    return namespace
