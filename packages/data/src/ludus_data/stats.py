"""`ludus data stats`: lengths, fields, and rewards and difficulty if the rows are rollouts.

Memory does not grow with the rows, except for rollouts: about 200 bytes for each task, for its mean reward.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ludus.data.row_checks import unambiguous_row
from ludus.errors import UserError, missing_extra
from ludus.outcome import UNREWARDED
from ludus.record import Row
from ludus_data.field_stats import LengthSummary, NumberSummary, RowFields
from ludus_data.inputs import Inputs, Tick
from ludus_data.row_text import prompt_text

#: Classes of tasks by their mean reward.
_DIFFICULTIES = ("always fails", "up to 1/4", "up to 1/2", "up to 3/4", "below 1", "always passes")

CountTokens = Callable[[str], int]


class DataStats:
    """The statistics of rows, added one at a time. `count_tokens` gives the number of tokens of a text."""

    def __init__(self, count_tokens: CountTokens | None = None) -> None:
        self.rows = self.bytes = 0
        self._count_tokens = count_tokens
        self._lengths = {name: LengthSummary() for name in ("characters", "words", "items", "tools")}
        if count_tokens is not None:
            self._lengths["tokens"] = LengthSummary()
        self._environments: Counter[str] = Counter()
        self._fields = RowFields()
        self._rollouts = _Rollouts()

    def add(self, row: Row, size: int) -> None:
        """Add one row, whose line has `size` bytes."""
        self.rows += 1
        self.bytes += size
        self._add_prompt(row)
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        if isinstance(name, str) and (name in self._environments or len(self._environments) < 1000):
            self._environments[name] += 1
        self._fields.add(row)
        if "outcome" in row or ("reward" in row and "response" in row):
            self._rollouts.add(row)

    def as_json(self) -> dict[str, Any]:
        """All statistics."""
        statistics: dict[str, Any] = {"rows": self.rows, "bytes": self.bytes, "environments": dict(self._environments)}
        statistics["prompt"] = {name: lengths.as_json() for name, lengths in self._lengths.items()}
        statistics["fields"] = self._fields.as_json()
        if self._rollouts.count:
            statistics["rollouts"] = self._rollouts.as_json()
        return statistics

    def _add_prompt(self, row: Row) -> None:
        params = row.get("responses_create_params")
        if not isinstance(params, dict):
            return
        text, prompt, tools = prompt_text(row), params.get("input"), params.get("tools")
        self._lengths["characters"].add(len(text))
        self._lengths["words"].add(len(text.split()))
        self._lengths["items"].add(len(prompt) if isinstance(prompt, list) else 1)
        if isinstance(tools, list):
            self._lengths["tools"].add(len(tools))
        if self._count_tokens is not None:
            self._lengths["tokens"].add(self._count_tokens(text))


class _Rollouts:
    """Outcomes, rewards, and the difficulty of tasks: a task's difficulty is its mean reward."""

    def __init__(self) -> None:
        self.count = 0
        self._outcomes: Counter[str] = Counter()
        self._reward = NumberSummary()
        self._tasks: dict[int, tuple[int, float]] = {}  # hash of the task's id -> rollouts and sum of rewards

    def add(self, row: Row) -> None:
        self.count += 1
        self._outcomes[str(row.get("outcome") or "completed")[:40]] += 1
        reward = row.get("reward")
        if row.get("outcome") in (*UNREWARDED, "masked"):
            return
        if isinstance(reward, bool) or not isinstance(reward, (int, float)):
            return
        self._reward.add(float(reward))
        task = hash(str(row.get("task_id") or prompt_text(row)))
        rollouts, total = self._tasks.get(task, (0, 0.0))
        self._tasks[task] = rollouts + 1, total + reward

    def as_json(self) -> dict[str, Any]:
        difficulty = dict.fromkeys(_DIFFICULTIES, 0)
        for rollouts, total in self._tasks.values():
            difficulty[_difficulty(total / rollouts)] += 1
        summary: dict[str, Any] = {"outcomes": dict(self._outcomes), "reward": self._reward.as_json()}
        return {**summary, "tasks": len(self._tasks), "mean_reward_of_tasks": difficulty}


def _difficulty(mean: float) -> str:
    return _DIFFICULTIES[5 if mean >= 1 else bisect_left((0.0, 0.25, 0.5, 0.75), mean)]


def stats(files: Sequence[str | Path], tokenizer: str | None = None, tick: Tick = lambda _: None) -> dict[str, Any]:
    """The statistics of files of rows or rollouts. `tokenizer` is a folder or a name for `transformers`."""
    inputs = Inputs(files, tick)
    statistics = DataStats(_token_counter(tokenizer) if tokenizer is not None else None)
    for where, line in inputs.lines():
        statistics.add(unambiguous_row(where, line), len(line))
    return statistics.as_json()


def _token_counter(name: str) -> CountTokens:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise missing_extra("transformers", "train", package="transformers") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # transformers raises many kinds
        cause = " ".join(str(error).split())
        hint = "Name a folder with a tokenizer"
        raise UserError(f"cannot load the tokenizer {name:.100}: {cause:.200}", hint) from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
