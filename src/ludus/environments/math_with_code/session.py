"""The Python session of a rollout, from outside: start it, hand it code, read its reply."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ludus.sandbox import Sandbox, SandboxError, SandboxLimits, SandboxSpec

#: The packages of the extra `code`.
PACKAGES = ("numpy", "scipy", "pandas")

#: The session's CPU time altogether, in seconds: it has the limit of the program that starts it.
_LIFETIME = 24 * 3600.0

_PRELOAD = ("ast", "importlib.util", "types", "math", "fractions", "itertools", "collections")

#: The names and types of a reply.
_REPLY = {"success": bool, "stdout": str, "stderr": str, "error_message": str | None, "result": str | None}


@cache
def installed() -> tuple[str, ...]:
    """The packages that are installed here."""
    return tuple(name for name in PACKAGES if find_spec(name) is not None)


@cache
def session_spec() -> SandboxSpec:
    """A sandbox in which processes stay, with the packages that are installed. Numeric libraries get one thread.

    Of the packages only numpy is imported before code needs it: pandas takes a second and much memory.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    limits, preload = (
        SandboxLimits(output_bytes=8 << 20),
        (*_PRELOAD, *(name for name in installed() if name == "numpy")),
    )
    return SandboxSpec(
        limits=limits, env=threads, packages=installed(), preload=preload, background=True, unix_sockets=True
    )


class PythonSession:
    """Runs pieces of code one after the other. Variables stay."""

    def __init__(self, sandbox: Sandbox, cells: list[str] | None = None) -> None:
        self.cells: list[str] = []  #: all code since the session started
        self._sandbox = sandbox
        self._earlier = list(cells or ())  # what another session has run, and this one has not yet
        self._turn = asyncio.Lock()  # the calls of one turn come at once
        self._started = self._lost = False

    async def run(self, code: str, seconds: float) -> dict[str, Any]:
        """Run code and return what the model sees. Code that does not stop ends the session."""
        async with self._turn:
            while self._earlier:
                await self._exec(self._earlier.pop(0), seconds)
            return await self._exec(code, seconds)

    def copied(self, sandbox: Sandbox) -> PythonSession:
        """A session that first repeats all code of this one."""
        return PythonSession(sandbox, [*self.cells, *self._earlier])

    async def _exec(self, code: str, seconds: float) -> dict[str, Any]:
        if not self._started and (problem := await self._start()) is not None:
            return _failed(problem)
        self.cells.append(code)
        asked = json.dumps({"code": code, "seconds": seconds}).encode()
        result = await self._sandbox.python(_source(), argv=["run"], stdin=asked, timeout=3 * seconds + 60)
        if (reply := _reply(result.stdout)) is not None:
            return reply
        self._started, self._lost, self.cells = False, True, []
        await self._sandbox.exec(["sh", "-c", "kill -9 $(cat /tmp/.session.pid); rm -rf /tmp/.session*"])
        killed = result.stdout.strip() == b'"killed"'
        cause = "code timed-out and did not stop" if killed else "the Python session ended"
        return _failed(f"{cause}: all variables are lost")

    async def _start(self) -> str | None:
        """Start the session. If earlier code made that impossible, returns the message for the model."""
        result = await self._sandbox.python(_source(), argv=["start"], timeout=_LIFETIME)
        self._started = result.ok
        if not result.ok and not self._lost:
            raise SandboxError(f"the Python session did not start: {result.why}: {result.last_line}")
        return None if result.ok else "the Python session ended and cannot be started again"


def _reply(data: bytes) -> dict[str, Any] | None:
    """The reply of a session; None if it sent none, or something else."""
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(reply, dict) or reply.keys() != _REPLY.keys():
        return None
    return reply if all(isinstance(reply[name], kind) for name, kind in _REPLY.items()) else None


def _failed(message: str) -> dict[str, Any]:
    return {"success": False, "stdout": "", "stderr": "", "error_message": message, "result": None}


@cache
def _source() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
