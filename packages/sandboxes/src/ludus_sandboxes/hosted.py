"""Sandboxes on somebody else's machines: what the adapters of all services share.

An adapter knows how its service makes and ends a sandbox, runs a shell command and uploads a file. Everything else is
here. The service ends every sandbox after its lifetime by itself, so that nothing outlives a collector that was killed.

A sandbox whose service failed in the middle of a call is closed: nobody knows what its program did.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import re
import secrets
from abc import abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar

from ludus.sandbox.features import require
from ludus.sandbox.protocol import (
    HOME,
    READ_BYTES,
    ExecResult,
    Program,
    Sandbox,
    SandboxError,
    SandboxProvider,
    SandboxSpec,
)
from ludus_sandboxes.hosted_http import Refused, Service, TooLarge
from ludus_sandboxes.hosted_script import ARGUMENT_BYTES, piped, program_script, read_report

log = logging.getLogger("ludus.sandbox")

#: The longest life of a sandbox in seconds, kept by the service.
LIFETIME = 3600

#: A service gets this many seconds more than a program before it must stop the program, and as many again to answer.
GRACE = 15.0

#: The exit code of a program that ended the script around it, where the service tells no other.
_NO_REPORT = 255

_PREPARE = f"""
[ -d {HOME} ] || mkdir -p {HOME} 2>/dev/null || sudo -n mkdir -p {HOME} || exit 1
[ -w {HOME} ] || sudo -n chown "$(id -u):$(id -g)" {HOME} || exit 1
command -v tar >/dev/null || {{ echo the image has no tar >&2; exit 1; }}
while [ "$1" != -- ]; do
  mkdir -p "{HOME}/$1"
  if [ ! "/$1" -ef "{HOME}/$1" ]; then
    [ ! -e "/$1" ] || {{ echo "the image has a /$1 of its own" >&2; exit 1; }}
    ln -s "{HOME}/$1" "/$1" 2>/dev/null || sudo -n ln -s "{HOME}/$1" "/$1" || exit 1
  fi
  shift
done
shift
[ $# = 0 ] || exec python3 -c 'import importlib.metadata as m, sys; [m.distribution(n) for n in sys.argv[1:]]' "$@"
"""


@dataclass(frozen=True)
class Ran:
    """What a service says about a shell command: its exit code, its stdout, and whether the service stopped it."""

    code: int | None
    output: bytes
    late: bool = False


class HostedSandbox(Sandbox):
    """A sandbox of a service."""

    def __init__(self, spec: SandboxSpec, provider: HostedProvider) -> None:
        self.spec = spec
        self._provider = provider
        self._turn = asyncio.Lock()
        self._ending: asyncio.Task[None] | None = None

    @abstractmethod
    async def _shell(self, command: str, seconds: float) -> Ran:
        """Run a command by `/bin/sh -c`; the service stops it after these seconds. Raises `SandboxError`."""

    @abstractmethod
    async def _upload(self, path: str, data: bytes) -> None:
        """Write a file under an absolute path that we chose. Raises `SandboxError`."""

    @abstractmethod
    async def _end(self) -> None:
        """Make the service end the sandbox. Raises `SandboxError`."""

    async def close(self) -> None:
        """Make the service end the sandbox. If the service does not, it ends when its lifetime is over."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_or_warn())
        await asyncio.shield(self._ending)

    async def prepare(self) -> None:
        """Make HOME, check what the image has, and write the files of the spec."""
        needs = [*self.spec.folders, "--", *self.spec.packages]
        result = await self.exec(["/bin/sh", "-c", _PREPARE, "sh", *needs], timeout=60.0, cwd="/")
        if not result.ok:
            said = result.stderr.decode(errors="replace").strip()
            needed = f"programs need {HOME}, sh, setsid, tar" + "".join(f", {name}" for name in self.spec.packages)
            raise SandboxError(f"the image cannot be used ({needed}): {result.why}: {said[-200:]}")
        await self.write_files(self.spec.files)

    async def run(self, program: Program) -> ExecResult:
        """Run a program. Its seconds include the way to the service and back."""
        program = await self._as_command(program)
        limit = min(program.output_bytes or 0, READ_BYTES + 1) or self.spec.limits.output_bytes
        stdin, seconds = program.stdin, program.timeout
        path = f"/tmp/.ludus-{secrets.token_hex(8)}" if stdin else None
        script = program_script(program, self.spec, cwd=posixpath.join(HOME, program.cwd or ""), stdin=path, most=limit)
        async with self._turn:
            if self._ending is not None:
                raise SandboxError("the sandbox is gone")
            began = monotonic()
            try:
                if path is not None:
                    await self._upload(path, stdin)
                    began = monotonic()
                ran = await self._run_script(script, seconds)
            except TooLarge:
                return ExecResult(limit="output", output_cut=True, seconds=monotonic() - began)
            except BaseException:
                self._provider.later(self.close())
                raise
            return _result(ran, limit, seconds, monotonic() - began, program.keep_last)

    async def _run_script(self, script: bytes, seconds: float) -> Ran:
        command = piped(script)
        if len(command) > ARGUMENT_BYTES:
            path = f"/tmp/.ludus-{secrets.token_hex(8)}"
            await self._upload(path, script)
            command = f"sh {path}; c=$?; rm -f {path}; exit $c"
        return await self._shell(command, seconds + GRACE)

    async def _end_or_warn(self) -> None:
        try:
            await self._end()
        except SandboxError as error:
            log.warning("a sandbox was not closed, and ends within %d s: %s", LIFETIME, error.cause)
        finally:
            self._provider.forget(self)


class ApiSandbox(HostedSandbox):
    """A sandbox that an HTTP API makes and ends. Its programs run through a server of its own."""

    collection: ClassVar[str]  #: the path of all sandboxes in the API

    def __init__(self, spec: SandboxSpec, provider: HostedProvider, api: Service, sandbox_id: str) -> None:
        super().__init__(spec, provider)
        self._api, self._id = api, sandbox_id
        self._inside: Service | None = None

    async def _end(self) -> None:
        if self._inside is not None:
            await self._inside.close()
        try:
            await self._api.send("DELETE", f"{self.collection}/{self._id}")
        except Refused as error:
            if error.status != 404:  # it is gone already
                raise

    def _service(self) -> Service:
        if self._inside is None:
            raise SandboxError("the sandbox has not started")
        return self._inside


def _result(ran: Ran, limit: int, timeout: float, seconds: float, keep_last: bool) -> ExecResult:
    """How the program ended. What is no report is the work of the program: the service itself answered well."""
    kept = slice(-limit, None) if keep_last else slice(limit)
    report = read_report(ran.output)
    if ran.late or (report is not None and report.timed_out):
        stdout, stderr = (report.stdout[kept], report.stderr[kept]) if report else (b"", b"")
        cut = report is not None and max(len(report.stdout), len(report.stderr)) > limit
        return ExecResult(stdout=stdout, stderr=stderr, timed_out=True, output_cut=cut, seconds=timeout)
    if report is None:
        said = b"the shell around the program ended without a report"
        return ExecResult(exit_code=ran.code or _NO_REPORT, stderr=said, seconds=seconds)
    return ExecResult(
        exit_code=report.exit_code,
        stdout=report.stdout[kept],
        stderr=report.stderr[kept],
        output_cut=max(len(report.stdout), len(report.stderr)) > limit,
        seconds=seconds,
    )


class HostedProvider(SandboxProvider):
    """Opens sandboxes of a service. Claims no attack: its sandboxes were never attacked by our tests."""

    claims = frozenset()
    lacks = frozenset({"mounts"})

    def __init__(self) -> None:
        self._opened: set[HostedSandbox] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _create(self, spec: SandboxSpec) -> HostedSandbox:
        """Make a sandbox of this spec. Raises `SandboxError`."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connections to the service."""

    async def open(self, spec: SandboxSpec) -> HostedSandbox:
        """A new sandbox. One whose opening is cancelled is still closed: the service may have made it already."""
        require(self, spec)
        opening = asyncio.create_task(self._open(spec))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self.later(_close_opened(opening))
            raise

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        while self._tasks or self._opened:
            await asyncio.gather(*self._tasks, *(sandbox.close() for sandbox in list(self._opened)))
        await self._disconnect()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background that `close` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, sandbox: HostedSandbox) -> None:
        """Called by a sandbox that has ended."""
        self._opened.discard(sandbox)

    async def _open(self, spec: SandboxSpec) -> HostedSandbox:
        sandbox = await self._create(spec)
        self._opened.add(sandbox)
        try:
            await sandbox.prepare()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox


async def _close_opened(opening: asyncio.Task[HostedSandbox]) -> None:
    try:
        sandbox = await opening
    except Exception:  # nothing was opened, and nobody waits for the reason any more
        return
    await sandbox.close()


def checked_id(value: object, service: str) -> str:
    """An id that a service sent, if it can stand in a URL."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,128}", value):
        return value
    raise SandboxError(f"{service} sent a sandbox id that is not one: {value!r:.100}")
