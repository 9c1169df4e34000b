"""Lines that a person types or a pipe holds, read while the event loop goes on.

A thread waits for each line. When the wait is cancelled that thread stays where it is until the process ends, so it
must not hold what Python needs on its way out: a pipe is read without Python's buffer and its lock, and a terminal,
which the line editor keeps in a mode of its own meanwhile, gets its settings back from us.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any, Self

from ludus.runtime.threads import in_thread


class Keyboard:
    """Standard input, one line at a time.

    with Keyboard() as keyboard:
        line = await keyboard.line("> ")  # None at the end of input
    """

    def __init__(self) -> None:
        self.interactive = _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
        self._before: Any = None

    def __enter__(self) -> Self:
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (input() edits lines and remembers them once this is imported)
                import termios

                self._before = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    async def line(self, prompt: str) -> str | None:
        """The next line without its end, or None when there is none."""
        line: str | None = await in_thread(self._typed if self.interactive else self._piped, prompt)
        return line

    def _typed(self, prompt: str) -> str | None:
        try:
            return input(prompt)
        except EOFError:
            print()
            return None

    def _piped(self, prompt: str) -> str | None:
        """What comes from a pipe is printed behind the prompt, so that the output reads as a conversation."""
        from ludus.cli.screen import clean

        try:
            line = io.FileIO(0, closefd=False).readline().decode("utf-8", "replace")
        except OSError:  # there is no standard input at all
            return None
        if not line:
            return None
        print(prompt + clean(line.rstrip("\r\n")), flush=True)
        return line.rstrip("\r\n")


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()
