"""What Inspect's scores say about a rollout: a reward, or why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ludus.errors import Failure
from ludus.outcome import Verdict

#: What the letters and words of Inspect's scorers are worth.
_WORDS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
#: Reasons of a score that say that it judges the scorer and not the answer.
_NO_VERDICT = {"grader_failed": "judge", "scoring_failed": "cannot_judge"}
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TEXT = 2000

Scores = dict[str, dict[str, Any]]


def failure_of_error(result: dict[str, Any]) -> Failure | None:
    """The failure of a sample that ended with an exception of its solver or of a scorer."""
    error = result.get("error")
    if not error:
        return None
    stage: Any = "verify" if result.get("scored") else "agent"
    text = " ".join(str(error["text"]).split())
    frames = [frame for frame in _FRAME.findall(error.get("traceback") or "") if "/inspect_ai/" not in frame[0]]
    where = f"{frames[-1][0].rpartition('/')[2]}:{frames[-1][1]} in {frames[-1][2]}" if frames else None
    return Failure("crash", text[:1000], stage=stage, where=where)


def verdict_of(result: dict[str, Any], chosen: str = "") -> Verdict:
    """The verdict of a sample's scores. `chosen` names the score that is the reward; by default it is the first.

    A score that is missing, not finite or of no known meaning is a failure, and never 0.
    """
    scores: Scores = result.get("scores") or {}
    if not scores:
        raise Failure("no_reward", "no scorer gave a score", stage="verify")
    values = {name: value for name, value, _ in _flat(scores)}
    first = str(result.get("first") or "")
    if not chosen and first and first not in scores:
        raise Failure("no_reward", f"the scorer {first} gave no score", stage="verify")
    name = _chosen(values, chosen)
    score = {own_name: score for own_name, _, score in _flat(scores)}[name]
    if (kind := _NO_VERDICT.get(str(score.get("reason")))) is not None:
        why = score.get("explanation") or score["reason"]
        raise Failure(kind, f"the scorer {name} gave no verdict: {str(why)[:300]}", stage="verify")
    reward = number_of(values[name])
    if reward is None:
        raise Failure("no_reward", f"the score {name} is {_shown(values[name])}", stage="verify")
    parts = {key: number for key, value in values.items() if (number := number_of(value)) is not None}
    said: dict[str, Any] = {
        f"score_{key}": str(score[key])[:_TEXT] for key in ("answer", "explanation") if score.get(key)
    }
    return Verdict(reward, components=parts if len(parts) > 1 else None, score_name=name, **said)


def number_of(value: Any) -> float | None:
    """A score as a number, as Inspect's `value_to_float` reads it; None if it has no such meaning."""
    if isinstance(value, (bool, int, float)):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    if (known := _WORDS.get(value.strip().lower())) is not None:
        return known
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _flat(scores: Scores) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each value with its name and its score: `SCORER`, or `SCORER.KEY` for the values of a score that has several."""
    for name, score in scores.items():
        value = score.get("value")
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", part, score) for key, part in value.items())
        else:
            yield name, value, score


def _chosen(values: dict[str, Any], chosen: str) -> str:
    if not values:
        raise Failure("no_reward", "the score has no values", stage="verify")
    if not chosen:
        return next(iter(values))
    found = [name for name in values if name == chosen or name.rpartition(".")[2] == chosen]
    found = found or [name for name in values if name.startswith(f"{chosen}.")]
    if not found:
        known = ", ".join(values)
        raise Failure("no_reward", f"there is no score {chosen} (resources.score), but {known}", stage="verify")
    return found[0]


def _shown(value: Any) -> str:
    return "not a number" if value is None else f"{value!r:.80}, not a number"
