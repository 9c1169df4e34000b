"""The paths of a run's files, and which run a path of the user means."""

from __future__ import annotations

import contextlib
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any, Self

import orjson

from ludus.errors import UserError, cannot_read
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.regular_files import open_regular, read_regular

#: The deepest nesting of run.json and of the other JSON files of a run.
MAX_DEPTH = 100

ROLLOUTS, FAILURES = "rollouts.jsonl", "failures.jsonl"


class Files:
    """The paths of a collection's files: in a folder, or beside an output file `X.jsonl`. `turns` exists only while
    rollouts are unfinished, `control` only after a request."""

    def __init__(self, output: str | Path) -> None:
        path = Path(output)
        self.is_folder = path.suffix != ".jsonl"
        self.rollouts = path / ROLLOUTS if self.is_folder else path
        self._name_others()

    @classmethod
    def of(cls, path: str | Path) -> Self:
        """The files of a run that a user names: by its folder, or by its file of rollouts.

        A file `rollouts.jsonl` is that of its folder, unless the run was written to a file of that name.
        """
        path, files = Path(path), cls(path)
        if path.is_dir():
            files.is_folder, files.rollouts = True, path / ROLLOUTS
        elif path.exists():
            files.is_folder, files.rollouts = False, path
            files._name_others()
            files.is_folder = path.name == ROLLOUTS and not files.run.exists()
        files._name_others()
        return files

    def _name_others(self) -> None:
        self.failures, self.run = self.beside(FAILURES), self.beside("run.json")
        self.metrics, self.turns = self.beside("metrics.json"), self.beside("turns.jsonl")
        self.control, self.status = self.beside("control.json"), self.beside("status.json")

    def beside(self, name: str) -> Path:
        """A file of the run, which other runs in the same folder have under another name."""
        return self.rollouts.with_name(name if self.is_folder else f"{self.rollouts.stem}.{name}")

    @property
    def name(self) -> str:
        """What the run is called: its folder, or its file without the ending."""
        named = self.rollouts.resolve().parent if self.is_folder else self.rollouts
        return named.name.removesuffix(".jsonl") or "run"

    def check_input(self, path: Path) -> None:
        """Refuse an input that is one of the output files."""
        for output in (self.rollouts, self.failures, self.run, self.metrics, self.turns):
            with contextlib.suppress(OSError):  # the output file does not exist yet
                if output.samefile(path):
                    raise UserError(f"{path} is the input and would be overwritten", "Choose another --output")

    def nonempty_journal(self) -> Path | None:
        """The first journal that is not empty. Does not open the journals, because opening repairs them."""
        for path in (self.rollouts, self.failures, self.turns):
            with contextlib.suppress(OSError):
                if path.stat().st_size:
                    return path
        return None

    def nothing_collected(self) -> bool:
        """Whether there are only failures of a run that could not start, such as a refused key or a missing judge.

        Such a failure holds no answer of a model, so a run with corrected settings may replace it.
        """
        try:
            if self.rollouts.stat().st_size or not self.run.exists():
                return False
            if self.turns.exists() and self.turns.stat().st_size:
                return False
            with open_regular(self.failures) as lines:
                return all(kind_of(orjson.loads(line).get("kind")).stops_run for line in lines)
        except (OSError, AttributeError, orjson.JSONDecodeError):
            return False

    def described(self) -> dict[str, Any]:
        """The content of run.json; empty if it is missing, broken or nested too deeply."""
        return read_json_object(self.run)


def rollouts_of(path: str | Path, hint: str = "Name a collection's folder or a file") -> Files:
    """The files of a run that has a file of rollouts. `hint` ends the error if there is none."""
    path, files = Path(path), Files.of(path)
    try:
        os.stat(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint) from error
    try:
        open_regular(files.rollouts, buffering=0).close()
    except FileNotFoundError as error:
        cause = f"{path} holds no {ROLLOUTS}"
        raise UserError(cause, "Collect some with: ludus collect ENV --output DIR") from error
    except OSError as error:
        raise cannot_read(files.rollouts, error) from error
    return files


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if it is missing, broken or nested too deeply."""
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and _is_shallow(value) else {}


def _is_shallow(value: Any) -> bool:
    """Whether a JSON value is nested at most `MAX_DEPTH` levels deep, so that code may recurse into it."""
    values = [value]
    for _ in range(MAX_DEPTH):
        parts = (part.values() if isinstance(part, dict) else part for part in values if isinstance(part, (dict, list)))
        values = list(chain.from_iterable(parts))
        if not values:
            return True
    return False
