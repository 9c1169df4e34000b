"""What is installed in a virtual environment, and what each package says about its licence.

This file runs inside the environment that it describes (`python inventory.py`), and therefore imports nothing but the
standard library.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from typing import Any

Package = dict[str, Any]

#: Files beside the metadata of a package that have its licence, how many of them are read, and how much of each.
_LICENCE_FILE = re.compile(r"\.dist-info/(?:.*/)?(?:licen[cs]e|copying)[^/]*$", re.IGNORECASE)
_MAX_FILES, _MAX_TEXT = 3, 6000


def packages() -> list[Package]:
    """The installed packages by name: version, licence, summary, and what each requires, as name and version."""
    found = {_name(each.metadata["Name"]): each for each in distributions() if each.metadata["Name"]}
    return [_package(name, found[name], found) for name in sorted(found)]


def _package(name: str, of: Distribution, known: dict[str, Distribution]) -> Package:
    required = {_name(match[0]) for line in of.requires or () if (match := re.match(r"[\w.-]+", line))}
    return {
        "name": name,
        "version": of.version,
        "declared": _declared(of),
        "summary": _field(of, "Summary"),
        "requires": sorted([each, known[each].version] for each in required if each in known and each != name),
    }


def _declared(of: Distribution) -> dict[str, Any]:
    """What a package says about its licence: an expression of SPDX, classifiers, a text, and files."""
    classifiers = [each for each in of.metadata.get_all("Classifier") or () if each.startswith("License ::")]
    return {
        "expression": _field(of, "License-Expression"),
        "classifiers": [each.rsplit("::", 1)[1].strip() for each in classifiers],
        "text": _field(of, "License")[:_MAX_TEXT],
        "files": [_read(of, each) for each in (of.files or ()) if _LICENCE_FILE.search(str(each))][:_MAX_FILES],
    }


def _read(of: Distribution, file: Any) -> str:
    try:
        with open(str(of.locate_file(file)), encoding="utf-8", errors="replace") as opened:
            return opened.read(_MAX_TEXT)
    except OSError:
        return ""


def _field(of: Distribution, name: str) -> str:
    """A field of the metadata; empty if the package does not have it."""
    return str((of.metadata.get_all(name) or [""])[0])


def _name(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(packages(), sys.stdout)
