"""The one protocol of all sandboxes: open, exec, read, write, snapshot, close.

A provider opens sandboxes; a sandbox runs untrusted programs. How a program ended is its `ExecResult`. An error on our
side is a `SandboxError`, which is a failure without a reward.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from ludus.errors import Failure
from ludus.sandbox.claims import ATTACK_WORDS
from ludus.sandbox.file_work import check_written, files_source, read_content
from ludus.sandbox.mounts import Mount

#: The working directory and HOME of every program, where the provider makes the file system.
HOME = "/home/user"

#: The kinds of attack that a provider can claim to stop.
ATTACKS = frozenset(ATTACK_WORDS)

#: The largest file that `read` returns, unless told otherwise.
READ_BYTES = 16 << 20

#: How many paths fit into one command.
_TOUCHED = 200


@dataclass(frozen=True)
class SandboxLimits:
    """The limits of one sandbox. A program that passes a limit is stopped; the others are not affected."""

    memory_mb: int = 1024  #: of all its processes, and of its files where these lie in memory
    processes: int = 64  #: at the same time, threads included
    disk_mb: int = 256
    files: int = 20_000  #: files and folders it may create
    open_files: int = 256  #: per process
    output_bytes: int = 1 << 20  #: of stdout and of stderr; the rest is cut off


@dataclass(frozen=True)
class SandboxSpec:
    """The image, limits, files and packages of a sandbox. Equal specs share a pool of warm sandboxes."""

    image: str | None = None  #: a root file system or an image, for providers that take one; None is the host's own
    limits: SandboxLimits = SandboxLimits()
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)  #: written when the sandbox opens
    folders: tuple[str, ...] = ()  #: names of folders of HOME that are found at the root too: `app` as /app
    packages: tuple[str, ...] = ()  #: Python distributions that programs may import, with their requirements
    mounts: tuple[Mount, ...] = ()  #: folders of the host that programs may read
    preload: tuple[str, ...] = ()  #: modules that every Python program finds imported already
    background: bool = False  #: whether processes go on after the `exec` that started them, until the sandbox closes
    unix_sockets: bool = False  #: whether programs talk to each other through Unix sockets
    network: bool = False  #: the host's network. Without it, `allow_hosts` opens a proxy to some hosts for a while


@dataclass(frozen=True)
class Program:
    """One program to run, as every provider gets it."""

    argv: tuple[str, ...]  #: the command; the arguments of a Python program
    source: str | None = None  #: of a Python program that runs as `__main__`
    stdin: bytes = b""
    timeout: float = 30.0
    cwd: str | None = None  #: relative to HOME
    env: Mapping[str, str] = field(default_factory=dict)  #: besides the spec's
    output_bytes: int | None = None  #: of stdout and of stderr, instead of the spec's limit
    keep_last: bool = False  #: keep the last bytes of the output and not the first, however long it is
    stop: asyncio.Event | None = field(default=None, compare=False)  #: ends the program when it is set


@dataclass(frozen=True)
class ExecResult:
    """How a program ended. Exactly one of `exit_code` and `signal` is set, unless it was stopped by a limit."""

    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False  #: it was stopped at its time limit
    out_of_memory: bool = False
    output_cut: bool = False  #: stdout or stderr was longer than the limit
    limit: str | None = None  #: what else stopped it: the limit of `files` or of `output`, or we (`stopped`)
    seconds: float = 0.0
    cpu_seconds: float = 0.0  #: of the program and of those of its children that ended

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with exit code 0."""
        return self.exit_code == 0 and not (self.timed_out or self.out_of_memory or self.limit)

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode(errors="replace")

    @property
    def last_line(self) -> str:
        """The last line that it wrote to stderr, cut to 300 characters."""
        return self.stderr[-2000:].decode(errors="replace").strip().rpartition("\n")[2].strip()[:300]

    @property
    def why(self) -> str:
        """How it ended, in a few words: `exit code 0`, `timed out after 2.0 s`, `signal 11`."""
        if self.timed_out:
            return f"timed out after {self.seconds:.1f} s"
        if self.out_of_memory:
            return "out of memory"
        if self.limit == "stopped":
            return "stopped by us"
        if self.limit is not None:
            return f"stopped: {self.limit} limit"
        return f"signal {self.signal}" if self.signal is not None else f"exit code {self.exit_code}"


class SandboxError(Failure):
    """The sandbox itself failed: no program is to blame, and its result is unknown."""

    def __init__(self, cause: str) -> None:
        super().__init__("sandbox", " ".join(cause.split()))


class Sandbox(ABC):
    """One sandbox. Its calls run one after the other. `close` it always: `async with await provider.open(spec)`."""

    spec: SandboxSpec
    home: str = HOME  #: the folder that programs start in, as they see it

    @property
    def is_open(self) -> bool:
        """Whether there is a sandbox yet: one may open when it is first used."""
        return True

    @abstractmethod
    async def run(self, program: Program) -> ExecResult:
        """Run a program. `exec` and `python` are what you call."""

    @abstractmethod
    async def close(self) -> None:
        """End every process and remove every file. May be called twice. Returns when all are gone."""

    async def exec(
        self,
        command: Sequence[str] | str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,  # noqa: ASYNC109
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        last_bytes: int | None = None,
        stop: asyncio.Event | None = None,
    ) -> ExecResult:
        """Run a program (a list of arguments) or a script for the shell (a text). Paths are relative to HOME.

        `last_bytes` is for long programs: the last so many bytes of stdout and of stderr are kept, and the program may
        print any amount. If `stop` is set, the program is ended with all that it started: `limit` is `stopped`, and
        the sandbox goes on. A cancelled call ends the whole sandbox.
        """
        argv = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        program = Program(argv, stdin=stdin, timeout=timeout, cwd=cwd, env=env or {}, stop=stop)
        return await self.run(replace(program, output_bytes=last_bytes, keep_last=last_bytes is not None))

    async def python(
        self,
        source: str,
        *,
        argv: Sequence[str] = (),
        stdin: bytes = b"",
        timeout: float = 30.0,  # noqa: ASYNC109
    ) -> ExecResult:
        """Run a Python program as `__main__`. Some providers do this in a warm interpreter."""
        return await self.run(Program(tuple(argv), source, stdin, timeout))

    async def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """The content of a regular file. Raises `FileNotFoundError`, or `OSError` if it is too large or no file."""
        script = f'[ -f "$1" ] || exit 44; head -c {max_bytes + 1} -- "$1"'
        result = await self._trusted(["/bin/sh", "-c", script, "sh", path], limit=max_bytes + 1)
        return read_content(result, path, max_bytes)

    async def read_if_there(self, path: str, max_bytes: int = READ_BYTES) -> bytes | None:
        """The content of a regular file that a program may have left; None if there is none that can be read.

        For verifiers: a missing, unreadable or too large file is the program's doing, and no failure of the rollout.
        """
        try:
            return await self.read(path, max_bytes)
        except (TimeoutError, ConnectionError) as error:
            raise SandboxError(f"the sandbox failed while {path:.200} was read: {error}") from error
        except OSError:
            return None

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file. Folders on the way are made."""
        mode = "755" if executable else "644"
        folder = 'case "$1" in ?*/*) mkdir -p -- "${1%/*}";; esac'  # an image may lack `dirname`
        script = f'{folder} && cat > "$1" && chmod {mode} -- "$1"'
        check_written(await self._trusted(["/bin/sh", "-c", script, "sh", path], stdin=data), path)

    async def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write the files that a sandbox begins with. Their times are 0, so that a program does not see the clock."""
        for path, data in files.items():
            await self.write(path, data)
        await self.set_times(files)

    async def set_times(self, paths: Iterable[str]) -> None:
        """Set the times of paths, of their parent folders and of HOME to 0. Paths that we may not change stay."""
        names = list(dict.fromkeys(name for path in paths for name in (path, *map(str, PurePosixPath(path).parents))))
        for start in range(0, len(names), _TOUCHED):
            script = 'touch -c -d @0 -- "$@" 2>/dev/null; exit 0'
            await self._trusted(["sh", "-c", script, "sh", *names[start : start + _TOUCHED], "."])

    async def work_on_files(
        self, operation: str, request: Mapping[str, Any], stdin: bytes = b"", limit: int | None = None
    ) -> ExecResult:
        """One operation of `inside/files.py`. A sandbox without our supervisor does it with its image's own Python."""
        argv = ("python3", "-I", "-c", files_source(), operation, json.dumps(request))
        return await self.run(Program(argv, stdin=stdin, timeout=120.0, cwd="/", output_bytes=limit))

    async def end_processes(self) -> None:
        """End every process that programs left behind. Needed only with `background`: else none outlives its `exec`."""
        if self.spec.background:
            raise SandboxError(f"{type(self).__name__} cannot end the processes that a program left behind")

    async def snapshot(self) -> bytes:
        """The files under HOME as a tar archive, without those that cannot be read. Processes are not part of it.

        Raises `OSError` if a program left files that cannot be archived.
        """
        script = 'chmod u+rwx "$1"; tar -C "$1" --ignore-failed-read --warning=no-failed-read -cf - .'
        limit = self.spec.limits.disk_mb << 21
        archive = Program(("sh", "-c", script, "sh", self.home), timeout=60.0, cwd="/", output_bytes=limit)
        result = await self.run(archive)
        if not result.ok or result.output_cut:
            raise OSError(f"the files in the sandbox cannot be archived: {result.why}")
        return result.stdout

    async def restore(self, snapshot: bytes) -> None:
        """Unpack a snapshot into HOME. It is unpacked inside, so that nothing in it can reach outside."""
        result = await self._trusted(["tar", "-C", self.home, "-xpf", "-"], stdin=snapshot)
        if not result.ok:
            raise OSError(f"cannot restore the snapshot: {result.why}: {result.last_line}")

    async def allow_hosts(self, hosts: Sequence[str]) -> None:
        """Let programs reach these hosts through a proxy, until `deny_hosts`. Only for set-up code that you trust."""
        raise SandboxError(f"{type(self).__name__} cannot open the network for some hosts: {shlex.join(hosts)}")

    async def deny_hosts(self) -> None:  # noqa: B027
        """Close what `allow_hosts` opened. Connections that are open are cut."""

    async def route(self, port: int) -> str:
        """Let programs reach one port of this machine's loopback, and return its URL: `http://127.0.0.1:PORT`.

        The URL is the same inside and outside. It stays open until `close_routes`, or until the sandbox closes.
        """
        raise SandboxError(f"{type(self).__name__} has no route to a port of this machine: use bubblewrap or oci")

    async def close_routes(self) -> None:  # noqa: B027
        """Close what `route` opened. Connections that are open are cut."""

    async def _trusted(self, command: Sequence[str], *, stdin: bytes = b"", limit: int | None = None) -> ExecResult:
        """Run a command of our own, whose output may be longer than a program's."""
        return await self.run(Program(tuple(command), stdin=stdin, timeout=60.0, output_bytes=limit))

    async def _as_command(self, program: Program) -> Program:
        """A Python program as a command that runs a file, for a sandbox without a warm interpreter."""
        if program.source is None:
            return program
        await self.write(".main.py", program.source.encode(errors="surrogatepass"))
        return replace(program, argv=("python3", ".main.py", *program.argv), source=None)

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class SandboxProvider(ABC):
    """Opens sandboxes of one kind."""

    name: str

    #: What its sandboxes are made of, for `ludus doctor`.
    about: str = ""

    #: The system package that it needs, if there is one.
    package: str | None = None

    #: Whether hostile code may run in its sandboxes. If not, a user must ask for it by name.
    isolates: bool = True

    #: The kinds of attack that its sandboxes stop.
    claims: frozenset[str] = ATTACKS

    #: What its sandboxes lack: `image`, `no_image`, `packages`, `folders`, `mounts`, `unix_sockets`. See `features.py`
    lacks: frozenset[str] = frozenset()

    @classmethod
    def problem(cls) -> str | None:
        """Why it cannot be used on this machine, or None."""
        return None

    @abstractmethod
    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox with the files of its spec. Raises `SandboxError`."""

    def session_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec of a session's own sandbox, with what the rollout's agent needs in it (see `equipment.py`)."""
        return spec

    async def check(self, spec: SandboxSpec) -> None:  # noqa: B027
        """Raise `SandboxError` if no sandbox of a spec could open: its image is missing, or no server answers."""

    async def fork(self, sandbox: Sandbox) -> Sandbox:
        """A second sandbox with the same files. Processes are not copied."""
        twin = await self.open(sandbox.spec)
        try:
            await twin.restore(await sandbox.snapshot())
        except BaseException:
            await twin.close()
            raise
        return twin

    async def close(self) -> None:  # noqa: B027
        """Close every sandbox that is still open."""
