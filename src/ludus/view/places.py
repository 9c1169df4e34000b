"""Where runs lie: a folder or a file that a user names becomes the runs to look at."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from ludus.errors import UserError, cannot_read
from ludus.runtime.regular_files import open_regular
from ludus.store.files import ROLLOUTS
from ludus.store.stored_run import StoredRun

#: How deep folders below a named folder are searched, and how many runs are listed.
DEPTH = 4
MAX_RUNS = 500

_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


class ViewedRun(StoredRun):
    """A run that is looked at. `key` names it in links; it stays the same as long as the run does not move."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.name = str(path.parent if path.name == ROLLOUTS else path)
        self.key = hashlib.blake2b(os.fsencode(self.files.rollouts.resolve()), digest_size=6).hexdigest()

    def exists(self) -> bool:
        """Whether any file of the run is there."""
        return any(path.exists() for path in (self.files.rollouts, self.files.failures, self.files.run))

    def check_journals(self) -> None:
        """Refuse a run with a journal that cannot be read, such as a folder or a FIFO."""
        for path in (self.files.rollouts, self.files.failures):
            try:
                open_regular(path, buffering=0).close()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise cannot_read(path, error) from error


def find_runs(paths: Iterable[Path]) -> list[ViewedRun]:
    """The runs at the given paths: runs themselves, or folders that hold runs. Each run is listed once."""
    runs: dict[str, ViewedRun] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist", "Name a collection's folder, or a folder with several of them")
        for run in _below(path, DEPTH):
            if run.path == path:
                run.check_journals()
            runs.setdefault(run.key, run)
            if len(runs) >= MAX_RUNS:
                return list(runs.values())
    return list(runs.values())


def _below(path: Path, depth: int) -> Iterator[ViewedRun]:
    if path.is_file():
        if path.suffix != ".jsonl":
            raise UserError(f"{path} is not a file of rollouts", "Name a folder, or a file that ends in .jsonl")
        yield ViewedRun(path)
        return
    if (run := ViewedRun(path)).exists():
        yield run
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and entry.name.endswith(".run.json"):  # of a collection with --output X.jsonl
            yield ViewedRun(path / f"{entry.name.removesuffix('.run.json')}.jsonl")
        elif entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _below(path / entry.name, depth - 1)


def folders_of(names: Iterable[str]) -> list[dict[str, Any]]:
    """The folders that hold several runs, with their number. Of folders with the same runs the innermost counts."""
    inside: dict[str, list[str]] = {}
    for name in names:
        for parent in PurePath(name).parents:
            if str(parent) not in (".", "/"):
                inside.setdefault(str(parent), []).append(name)
    folders = [
        {"at": folder, "runs": len(runs)}
        for folder, runs in inside.items()
        if len(runs) > 1 and not any(is_below(other, folder) and inside[other] == runs for other in inside)
    ]
    return sorted(folders, key=lambda folder: str(folder["at"]))


def is_below(name: str, folder: str) -> bool:
    """Whether a run lies below a folder, by their names."""
    return PurePath(folder) in PurePath(name).parents
