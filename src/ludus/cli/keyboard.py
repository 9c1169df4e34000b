"""Lines from a terminal or a pipe, read without blocking the event loop.

A thread waits for each line. After a cancel that thread stays blocked until the process ends, so it must hold no lock
that Python needs at exit: a pipe is read without `sys.stdin`'s buffer and lock. On a terminal, readline changes the
settings while it waits; `__exit__` restores them.
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
        self._terminal_settings: Any = None

    def __enter__(self) -> Self:
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (importing it gives input() line editing and history)
                import termios

                self._terminal_settings = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(self, *exc: object) -> None:
        if self._terminal_settings is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._terminal_settings)

    async def line(self, prompt: str) -> str | None:
        """The next line without its newline; None at the end of input."""
        line: str | None = await in_thread(self._read_terminal if self.interactive else self._read_pipe, prompt)
        return line

    def _read_terminal(self, prompt: str) -> str | None:
        try:
            return input(prompt)
        except EOFError:
            print()
            return None

    def _read_pipe(self, prompt: str) -> str | None:
        """Read a line from a pipe and print it after the prompt, so that the output reads as a conversation."""
        from ludus.cli.screen import clean

        try:
            line = io.FileIO(0, closefd=False).readline().decode("utf-8", "replace")
        except OSError:  # standard input is closed
            return None
        if not line:
            return None
        print(prompt + clean(line.rstrip("\r\n")), flush=True)
        return line.rstrip("\r\n")


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()
