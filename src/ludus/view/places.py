"""Where runs lie: a folder or a file that a user names becomes the runs to look at."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.store.run import Files

#: How deep folders below a named folder are searched, and how many runs are listed.
DEPTH = 4
MAX_RUNS = 500

_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


class ViewedRun:
    """A run that is looked at. `key` names it in links; it stays the same as long as the run does not move."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = Files(path)
        if path.name == found.rollouts.name and Files(path.parent).rollouts.name == path.name:
            found = Files(path.parent)  # the file inside a collection's folder
        self.files = found
        self.name = str(path.parent if path.name == "rollouts.jsonl" else path)
        self.key = hashlib.blake2b(os.fsencode(found.rollouts.resolve()), digest_size=6).hexdigest()

    def beside(self, name: str) -> Path:
        """A file of the viewer beside the run's own files."""
        rollouts = self.files.rollouts
        return rollouts.with_name(name if rollouts.name == "rollouts.jsonl" else f"{rollouts.stem}.{name}")

    def exists(self) -> bool:
        """Whether any file of the run is there."""
        return any(path.exists() for path in (self.files.rollouts, self.files.failures, self.files.run))

    def described(self) -> dict[str, Any]:
        """The content of run.json; empty if it is missing or broken."""
        return read_json_object(self.files.run)

    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json; empty if it is missing, broken or older than the rollouts."""
        try:
            fresh = self.files.metrics.stat().st_mtime_ns >= self.files.rollouts.stat().st_mtime_ns
        except OSError:
            return {}
        return read_json_object(self.files.metrics) if fresh else {}


def find_runs(given: Iterable[Path]) -> list[ViewedRun]:
    """The runs at the given paths: runs themselves, or folders that hold runs. Each run is listed once."""
    found: dict[str, ViewedRun] = {}
    for path in given:
        if not path.exists():
            raise UserError(f"{path} does not exist", "Name a collection's folder, or a folder with several of them")
        for each in _below(path, DEPTH):
            run = ViewedRun(each)
            found.setdefault(run.key, run)
            if len(found) >= MAX_RUNS:
                return list(found.values())
    return list(found.values())


def _below(path: Path, depth: int) -> Iterator[Path]:
    if path.is_file():
        if path.suffix != ".jsonl":
            raise UserError(f"{path} is not a file of rollouts", "Name a folder, or a file that ends in .jsonl")
        yield path
        return
    files = Files(path)
    if files.rollouts.exists() or files.failures.exists() or files.run.exists():
        yield path
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and entry.name.endswith(".run.json"):  # of a collection with --output X.jsonl
            yield path / f"{entry.name.removesuffix('.run.json')}.jsonl"
        elif depth and entry.is_dir(follow_symlinks=False) and not _is_skipped(entry.name):
            yield from _below(path / entry.name, depth - 1)


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if it is missing or broken."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
