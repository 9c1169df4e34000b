"""The file from which pytest takes its settings: found among the files of the checkout, never among a model's.

pytest is told to read this file and no other (`-c`), so that a model's file cannot name a plugin.
"""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

#: In the order in which pytest looks for them. The first four count even if they are empty.
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
SETTINGS = (*_ALWAYS, "pyproject.toml", "tox.ini", "setup.cfg")

_SECTIONS = {"tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def pytest_settings(trusted: Mapping[str, bytes], tests: Iterable[str]) -> str | None:
    """The path of the settings for these test files, or None. pytest looks in their folder, then in those above."""
    folders = [[*reversed(PurePosixPath(path).parents)] for path in tests]
    shared = [places[0] for places in zip(*folders, strict=False) if len(set(places)) == 1]
    for folder in reversed(shared):
        for name in SETTINGS:
            path = str(folder / name)
            if path in trusted and _has_settings(name, trusted[path]):
                return path
    return None


def _has_settings(name: str, data: bytes) -> bool:
    if name in _ALWAYS:
        return True
    text = data.decode(errors="replace")
    try:
        if name == "pyproject.toml":
            tool = tomllib.loads(text).get("tool")
            return isinstance(tool, dict) and "pytest" in tool
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        parser.read_string(text)
    except (tomllib.TOMLDecodeError, configparser.Error, RecursionError):
        return False
    return parser.has_section(_SECTIONS[name])
