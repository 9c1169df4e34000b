"""What a release prints, a line for each check as it ends, and the same in checks.json."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from building import ReleaseError
from checking import CleanEnvironment, CommandFailed


class Check:
    """One check: what it shows, and what it found."""

    def __init__(self, shows: str) -> None:
        self.shows = shows
        self.failure = ""
        self.printed = ""
        self.packages = 0
        self.megabytes = 0.0
        self.seconds = 0.0

    def measure(self, clean: CleanEnvironment, packages: int) -> None:
        """Keep the size of the environment that the check made."""
        self.packages, self.megabytes = packages, clean.megabytes()

    def __str__(self) -> str:
        size = f"{self.packages} packages, {self.megabytes:,.0f} MB, " if self.packages else ""
        return f"{self.shows} ({size}{self.seconds:.0f} s)" + (f"\n    {self.failure}" if self.failure else "")


class Report:
    """All checks of a release."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checks: dict[str, Check] = {}

    def say(self, text: str) -> None:
        """Print a line now."""
        print(text, flush=True)

    @contextmanager
    def check(self, name: str, shows: str, *, quiet: bool = False) -> Iterator[Check]:
        """Run one check. A failure of it is kept, and the release goes on to the next one.

        A `quiet` check is printed only if it fails.
        """
        check, began = Check(shows), time.monotonic()
        try:
            yield check
        except ReleaseError as error:
            check.failure = str(error)
            check.printed = error.printed if isinstance(error, CommandFailed) else ""
        check.seconds = time.monotonic() - began
        self._checks[name] = check
        if check.failure or not quiet:
            self.say(f"{'FAILED' if check.failure else 'ok    '} {name}: {check}")
        self._write()

    def end(self) -> None:
        """Raise if a check failed."""
        failed = [name for name, check in self._checks.items() if check.failure]
        if failed:
            raise ReleaseError(f"{len(failed)} of {len(self._checks)} checks failed: {', '.join(failed)}")
        self.say(f"\nall {len(self._checks)} checks passed; see {self._path.parent}")

    def _write(self) -> None:
        found = {name: vars(check) for name, check in self._checks.items()}
        self._path.write_text(json.dumps(found, indent=1) + "\n")
