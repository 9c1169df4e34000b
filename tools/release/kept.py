"""What earlier runs of a release found, so that an interrupted release does not check an extra twice.

Each extra that passed leaves a file in `dist/checked`. The file counts for the same wheels, the same script, the same
Python and the same listing of packages. Packages on the index may have newer versions since: delete the folder to check
every extra anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import inventory
from building import digest
from inventory import Package
from report import Check
from uses import Use


class Kept:
    """The extras of one release's wheels that passed."""

    def __init__(self, folder: Path, *wheels: Path) -> None:
        self._folder, self._wheels = folder, " ".join(map(digest, wheels))

    def find(self, use: Use, check: Check) -> list[Package] | None:
        """The packages of an extra that passed before, and its sizes into `check`; None if it has to be checked."""
        try:
            found = json.loads(self._path(use).read_text())
            if found["key"] != self._key(use):
                return None
            check.repeat(found["check"])
            packages: list[Package] = found["packages"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never checked, or a file that was cut short
        return packages

    def keep(self, use: Use, check: Check, packages: list[Package]) -> None:
        """Remember that an extra passed."""
        self._folder.mkdir(exist_ok=True)
        text = json.dumps({"key": self._key(use), "check": vars(check), "packages": packages}) + "\n"
        beside = self._path(use).with_suffix(".new")
        beside.write_text(text)
        beside.rename(self._path(use))

    def _path(self, use: Use) -> Path:
        return self._folder / f"{use.extra}.json"

    def _key(self, use: Use) -> str:
        listing = digest(Path(inventory.__file__))
        machine = f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"
        return f"{self._wheels} {hashlib.sha256(use.script.encode()).hexdigest()} {listing} {machine}"
