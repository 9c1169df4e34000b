"""Where the conversations of captured calls are remembered: the digest of each, and the calls that ended with it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Protocol

from nemo_gym._rollout_files import append_line, read_lines, rollout_file


class LineageStore(Protocol):
    """Remembers calls by the digest of their conversation."""

    def add(self, rollout_id: str, digest: str, model_call_id: str) -> None:
        """Remember a call."""

    def find(self, rollout_id: str) -> dict[str, list[str]]:
        """The calls of a rollout by their digests."""


class InMemoryLineageStore:
    """Remembers the calls of this process until their rollout is dropped."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, list[str]]] = {}

    def add(self, rollout_id: str, digest: str, model_call_id: str) -> None:
        """Remember a call."""
        self._calls.setdefault(rollout_id, {}).setdefault(digest, []).append(model_call_id)

    def find(self, rollout_id: str) -> dict[str, list[str]]:
        """The calls of a rollout by their digests."""
        return self._calls.get(rollout_id, {})

    def drop(self, rollout_id: str) -> None:
        """Forget a rollout."""
        self._calls.pop(rollout_id, None)


class FileLineageStore:
    """Remembers calls in a folder, which several processes may share."""

    _SUFFIX = ".lineage.jsonl"

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def add(self, rollout_id: str, digest: str, model_call_id: str) -> None:
        """Remember a call."""
        append_line(rollout_file(self.directory, rollout_id, self._SUFFIX), [digest, model_call_id])

    def find(self, rollout_id: str) -> dict[str, list[str]]:
        """The calls of a rollout by their digests. A torn line is left out."""
        calls: defaultdict[str, list[str]] = defaultdict(list)
        for value in read_lines(rollout_file(self.directory, rollout_id, self._SUFFIX)):
            if isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
                calls[value[0]].append(value[1])
        return dict(calls)

    def drop(self, rollout_id: str) -> None:
        """Forget a rollout."""
        rollout_file(self.directory, rollout_id, self._SUFFIX).unlink(missing_ok=True)
