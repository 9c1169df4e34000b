"""Scores one answer with the library, in a child process.

Importing the library takes seconds and a hundred megabytes, so the collecting process never imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from reasoning_gym.factory import DATASETS

from ludus.environments.reasoning_gym.evaluation import defuse
from ludus.environments.reasoning_gym.repairs import Entry, repaired

Scorer = Callable[[str, Entry], float]


def families() -> dict[str, str]:
    """Every family of puzzles with its category."""
    categories = {name: dataset.__module__.split(".")[1] for name, (dataset, _) in DATASETS.items()}
    return {name: category for name, category in sorted(categories.items()) if name != "composite"}


def score(family: str, answer: str, entry: Entry, config: dict[str, Any], compat: bool) -> tuple[float, str | None]:
    """The reward of an answer, and the problem with the row if the row cannot be scored.

    If the scorer raises on an answer, the answer earns 0. If it also raises on the row's own answer, the row is bad.
    With `compat` every error is a 0.
    """
    try:
        scorer = _scorer(family, "{}" if compat else json.dumps(config, sort_keys=True))
    except Exception as error:
        return 0.0, None if compat else f"there is no scorer for {family}: {_described(error)}"
    try:
        reward = float(scorer(answer, entry)) if compat else _score(family, scorer, answer, entry)
    except Exception:
        return 0.0, None if compat else _problem(family, scorer, entry)
    return reward if math.isfinite(reward) else 0.0, None


def _score(family: str, scorer: Scorer, answer: str, entry: Entry) -> float:
    return repaired(family, answer, entry, float(scorer(answer, entry)))


@lru_cache(maxsize=256)
def _scorer(family: str, config: str) -> Scorer:
    defuse()
    if family == "composite" or family not in DATASETS:
        raise ValueError("unknown family")
    dataset, settings = DATASETS[family]
    scorer: Scorer = dataset(config=settings(**json.loads(config))).score_answer
    return scorer


def _problem(family: str, scorer: Scorer, entry: Entry) -> str | None:
    try:
        _score(family, scorer, "?" if entry["answer"] is None else entry["answer"], entry)
    except Exception as error:
        return f"the row's own answer cannot be scored: {_described(error)}"
    return None


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
