"""What a release prints, a line for each check as it begins and as it ends, and the same in checks.json."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from building import ReleaseError
from checking import CleanEnvironment
from installing import NotInstallable
from running import CommandFailed


class Check:
    """One check: what it shows, and what it found."""

    def __init__(self, shows: str) -> None:
        self.shows = shows
        self.failure = ""
        self.not_checked = ""
        self.printed = ""
        self.packages = 0
        self.megabytes = 0.0
        self.seconds = 0.0
        self.earlier = False

    def measure(self, clean: CleanEnvironment, packages: int) -> None:
        """Keep the size of the environment that the check made."""
        self.packages, self.megabytes = packages, clean.megabytes()

    def repeat(self, earlier: dict[str, Any]) -> None:
        """Take over the figures of an earlier run that passed."""
        self.packages, self.megabytes = int(earlier["packages"]), float(earlier["megabytes"])
        self.earlier = True

    @property
    def result(self) -> str:
        """One word or two for the table."""
        return "FAILED" if self.failure else "not checked" if self.not_checked else "ok"

    def __str__(self) -> str:
        size = f"{self.packages} packages, {self.megabytes:,.0f} MB, " if self.packages else ""
        return f"{self.shows} ({size}{'checked by an earlier run' if self.earlier else f'{self.seconds:.0f} s'})"


class Report:
    """All checks of a release. `expected` is how many will be printed."""

    def __init__(self, path: Path, expected: int = 0) -> None:
        self._path, self._expected = path, expected
        self._checks: dict[str, Check] = {}
        self._printed = 0
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line now."""
        print(text, flush=True)

    @contextmanager
    def check(self, name: str, shows: str, *, quiet: bool = False) -> Iterator[Check]:
        """Run one check. A failure of it is kept, and the release goes on to the next one.

        A `quiet` check is printed only if it fails.
        """
        check, began = Check(shows), time.monotonic()
        if not quiet:
            self._printed += 1
            self.say(f"[{self._printed}/{self._expected}] {self._minutes()} {name} ...")
        try:
            yield check
        except NotInstallable as error:
            check.not_checked = str(error)
        except ReleaseError as error:
            check.failure = str(error)
            check.printed = error.printed if isinstance(error, CommandFailed) else ""
        check.seconds = time.monotonic() - began
        self._checks[name] = check
        if check.failure or not quiet:
            self.say(f"    {check.result} {name}: {check}")
        if reason := check.failure or check.not_checked:
            self.say(f"        {reason}")
        self._write()

    def end(self, extras: list[str]) -> None:
        """Print which of all `extras` were checked and where the files lie; raise if a check failed."""
        self.say("\nExtras, each installed alone:")
        for extra in extras:
            self.say(f"  {extra:14} {self._row(extra)}")
        self.say(f"\nThe release took {self._minutes()} minutes. Its files:")
        for path in sorted(each for each in self._path.parent.iterdir() if each.is_file()):
            self.say(f"  {path}")
        failed = [name for name, check in self._checks.items() if check.failure]
        if failed:
            raise ReleaseError(
                f"{len(failed)} of {len(self._checks)} checks failed: {', '.join(failed)}. "
                f"{self._path} has what each printed"
            )
        passed = sum(check.result == "ok" for check in self._checks.values())
        self.say(f"\n{passed} checks passed, {len(self._checks) - passed} could not run on this machine")

    def _row(self, extra: str) -> str:
        """The line of one extra in the table at the end."""
        check = self._checks.get(f"extra {extra}")
        if check is None:
            return "not checked  not asked for"
        size = f"{check.packages:3} packages, {check.megabytes:6,.0f} MB"
        if check.earlier:
            size += ", checked by an earlier run"
        return f"{check.result:12} {check.failure or check.not_checked or size}"

    def _minutes(self) -> str:
        """The time since the release began, as minutes:seconds."""
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02}"

    def _write(self) -> None:
        found = {name: vars(check) for name, check in self._checks.items()}
        self._path.write_text(json.dumps(found, indent=1) + "\n")
