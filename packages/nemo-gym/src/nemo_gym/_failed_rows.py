"""Failed rollouts in the files of a collection: which are final, how long they took, and where they belong."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ludus.store.drafts import write_whole
from nemo_gym._metrics import distribution, number
from nemo_gym.path_utils import failures_path_for

#: Keys of a result that is no rollout: why, whether another attempt is useless, and whether it is written nowhere.
NG_FAILURE_CLASS_KEY = "_ng_failure_class"
NG_TERMINAL_KEY = "_ng_failure_terminal"
NG_NO_PERSIST_KEY = "_ng_no_persist"

#: Classes that deserve another attempt if terminal timeouts are retried, and the one that never does.
_RETRIED = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})
_SKIPPED = "skipped"
_JUDGE_FAILED = "judge_failed"


def is_terminal_failure(record: Mapping[str, Any], *, retry_terminal_timeouts: bool = False) -> bool:
    """Whether another attempt is useless.

    With `retry_terminal_timeouts`, timeouts and missing parts are never final, and skipped rows always are.
    """
    failure_class = record.get(NG_FAILURE_CLASS_KEY)
    if retry_terminal_timeouts and failure_class in _RETRIED:
        return False
    if retry_terminal_timeouts and failure_class == _SKIPPED:
        return True
    return bool(record.get(NG_TERMINAL_KEY))


def observed_elapsed(record: Mapping[str, Any]) -> float | None:
    """The seconds that a rollout took, as its record says; None if it does not.

    The first number whose key contains `elapsed` counts, then `total_latency_ms` of `ng_perf`.
    """
    for key, value in record.items():
        seconds = number(value) if "elapsed" in str(key) else None
        if seconds is not None:
            return seconds / 1000 if str(key).endswith("_ms") else seconds
    perf = record.get("ng_perf")
    latency = number(perf.get("total_latency_ms")) if isinstance(perf, Mapping) else None
    return latency / 1000 if latency is not None else None


class DispatchLatencyTracker:
    """The seconds from the dispatch of each rollout to its result."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self._started: dict[Hashable, float] = {}

    def start(self, key: Hashable) -> None:
        """A rollout is sent."""
        self._started[key] = time.monotonic()

    def finish(self, key: Hashable) -> float | None:
        """A rollout's result has come. Returns its seconds; None if it was not sent."""
        started = self._started.pop(key, None)
        if started is None:
            return None
        self.record(time.monotonic() - started)
        return self.latencies[-1]

    def record(self, seconds: float) -> None:
        """Add a latency that was measured elsewhere."""
        self.latencies.append(float(seconds))

    @property
    def in_flight(self) -> int:
        """The number of rollouts without a result."""
        return len(self._started)

    def summary(self) -> dict[str, float]:
        """The number of results, and mean, median, quartiles and extremes of their seconds."""
        return {"count": len(self.latencies), **(distribution(self.latencies) if self.latencies else {})}


def migrate_invalid_judge_main_rows(path: Path | str) -> int:
    """Move the rows of failed judges from the file of rollouts to the file of failures. Returns their number.

    Such rows have a reward of 0 that no judge gave. A line that is no JSON stays where it is.
    """
    main = Path(path)
    if not main.is_file():
        return 0
    kept, moved = list[bytes](), list[bytes]()
    for line in main.read_bytes().splitlines(keepends=True):
        (moved if _is_failed_judge(line) else kept).append(line if line.endswith(b"\n") else line + b"\n")
    if moved:
        failures = failures_path_for(main)
        earlier = failures.read_bytes() if failures.is_file() else b""
        new = b"".join(line for line in moved if line not in earlier)  # a move that was interrupted is repeated
        write_whole(failures, earlier + new)
        write_whole(main, b"".join(kept))
    return len(moved)


def _is_failed_judge(line: bytes) -> bool:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and row.get(NG_FAILURE_CLASS_KEY) == _JUDGE_FAILED
