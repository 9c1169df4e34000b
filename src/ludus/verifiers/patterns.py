"""Regular expressions that come with a dataset, run where they can be stopped.

Python's `re` backtracks, and holds the interpreter's lock while it does. A pattern of a row against the text of a model
can take hours, and no thread, deadline or cancellation ends it: the whole process stands still. So these searches run
in a child process with a budget of CPU time. The price is a fraction of a millisecond a search, and some 30 ms once to
start the child; patterns that we wrote ourselves, and know to be linear, need none of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any, Self

from ludus.outcome import Failure

_CHILD = Path(__file__).with_name("patterns_child.py")

Span = tuple[int, int]


class PatternError(ValueError):
    """A pattern that `re` does not accept."""


class Patterns:
    """Searches in child processes, which are started when first needed and ended with the context.

    async with Patterns() as patterns:
        spans = await patterns.last_match(r"Choice: ([A-D])", text)
    """

    def __init__(self, children: int = 2, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self._idle: list[Process] = []
        self._slots = asyncio.Semaphore(children)

    async def last_match(self, pattern: str, text: str, flags: int = 0) -> list[Span] | None:
        """Where the last match and its groups are (-1, -1 for a group that took no part), or None.

        Raises `PatternError` for a pattern that is none, and a `Failure` of kind `timeout` when the budget is spent.
        """
        async with self._slots:
            child = self._idle.pop() if self._idle else await _start()
            try:
                reply = await _ask(child, [self.seconds, pattern, int(flags), text])
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                if await _end(child) == -signal.SIGVTALRM:
                    cause = f"the pattern {pattern!r:.100} was stopped after {self.seconds:g} s of searching"
                    raise Failure("timeout", cause) from None
                raise Failure("crash", f"the search for {pattern!r:.100} ended with {child.returncode}") from error
            except BaseException:
                await _end(child)
                raise
            self._idle.append(child)
        if isinstance(reply, str):
            raise PatternError(f"{pattern!r:.100}: {reply}")
        return None if reply is None else [(start, end) for start, end in reply]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        while self._idle:
            await _end(self._idle.pop())


async def _start() -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(_CHILD), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )


async def _ask(child: Process, request: list[Any]) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    message = json.dumps(request).encode()  # escapes what UTF-8 cannot hold
    child.stdin.write(len(message).to_bytes(4, "big") + message)
    await child.stdin.drain()
    header = await child.stdout.readexactly(4)
    return json.loads(await child.stdout.readexactly(int.from_bytes(header, "big")))


async def _end(child: Process) -> int:
    """End a child that may have ended already, and return how it did."""
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    return await child.wait()
