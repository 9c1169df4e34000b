"""A text stream whose lines begin with the name of their server: several servers may share one terminal."""

from __future__ import annotations

from typing import Any


class NamedLines:
    """Writes to a stream, with `[NAME] ` in front of every line. Everything else is the stream's."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._prefix = stream, f"[{name}] "
        self._in_line = False

    def write(self, text: str) -> int:
        """Write a text, which may hold several lines or a part of one."""
        if text:
            named = text[:-1].replace("\n", f"\n{self._prefix}") + text[-1]
            self._stream.write(named if self._in_line else self._prefix + named)
            self._in_line = not text.endswith("\n")
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
