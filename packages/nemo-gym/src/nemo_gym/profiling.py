"""A profile of what a server's code spends its time on."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
from pathlib import Path

from pydantic import BaseModel, Field, PrivateAttr

#: A line of the table about a function: how often it was called, and its seconds.
_FUNCTION = re.compile(r"\s*\d+(/\d+)?\s+\d+\.\d+\s")


class Profiler(BaseModel):
    """Profiles the calling thread between `start` and `stop`, with Python's cProfile.

    `dump` writes `NAME.prof`, for programs such as snakeviz, and `NAME.log`, a table of the functions, the slowest
    first. With `required_str` the table has only functions whose file or name contains that text.
    """

    name: str = Field(pattern=r"^[^\s/\\]+$")
    base_profile_dir: Path
    required_str: str | None = None

    _profile: cProfile.Profile | None = PrivateAttr(default=None)
    _running: bool = PrivateAttr(default=False)

    def start(self) -> None:
        """Begin to count. A profile that was stopped goes on."""
        if not self._running:
            self._profile = self._profile or cProfile.Profile()
            self._profile.enable()
            self._running = True

    def stop(self) -> None:
        """End the count. `dump` writes it."""
        if self._profile is not None and self._running:
            self._profile.disable()
            self._running = False

    def dump(self) -> None:
        """Write what was counted so far."""
        if self._profile is None:
            raise RuntimeError(f"profiler {self.name} has not started: call start() first")
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)
        table = io.StringIO()
        stats = pstats.Stats(self._profile, stream=table)
        if self._running:  # reading the profile has ended the count
            self._profile.enable()
        stats.dump_stats(self.base_profile_dir / f"{self.name}.prof")
        stats.sort_stats("cumulative").print_stats()
        lines = table.getvalue().splitlines(keepends=True)
        (self.base_profile_dir / f"{self.name}.log").write_text("".join(filter(self._wanted, lines)), encoding="utf-8")

    def _wanted(self, line: str) -> bool:
        """Whether a line of the table is shown: the head, and functions with the required text."""
        return self.required_str is None or not _FUNCTION.match(line) or self.required_str in line
