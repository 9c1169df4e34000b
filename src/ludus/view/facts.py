"""What the index keeps of one rollout: the figures that pages sum up.

A row may come from any program, so every value is checked and a wrong one counts as missing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ludus.dialects.usage import cached_tokens, token_count
from ludus.outcome import UNREWARDED
from ludus.record import Row, asked, read_tool_errors, verifier_of
from ludus.store.counting import attempt_of
from ludus.store.statistics import finite_number

#: The stages whose seconds have a column, in the order in which a rollout goes through them.
STAGES = ("open", "connect", "model", "tool", "user", "verify", "group", "close", "total")

#: How many characters of a rollout's prompt are listed.
ABOUT = 160

#: How many tools, components and values of one rollout are kept.
MAX_NAMES = 64

OUTCOMES = ("completed", "masked", "failed", "ended_early")


class Facts:
    """The figures of one row. `columns` has the columns of `schema.FACTS`, in that order."""

    __slots__ = ("columns", "environment", "key", "task_id", "tools", "values")

    def __init__(self, row: Row, number: int, passes: dict[str, float]) -> None:
        response, usage = object_of(row.get("response")), object_of(row.get("usage"))
        usage = usage or object_of(response.get("usage"))
        self.environment = _text(object_of(row.get("agent_ref")).get("name"), 200)
        self.task_id = task_id_of(row)
        repeat = _integer(row.get("repeat", row.get("_ng_rollout_index", number)))
        rollout_id = _text(row.get("rollout_id"), 500) or f"{self.task_id}-{repeat}"
        outcome = row.get("outcome", "completed")
        outcome = outcome if outcome in OUTCOMES else "failed"
        failed = outcome in UNREWARDED
        reward = finite_number(row.get("reward")) if not failed else None
        calls = row.get("model_calls")
        output = items_of(response.get("output"))
        self.key = key_of(self.environment, self.task_id, rollout_id)
        self.tools = _tools(output, row)
        self.values = list(_values(row))
        self.columns: dict[str, Any] = {
            "rollout_id": rollout_id,
            "repeat": repeat,
            "attempt": _clamped(attempt_of(row)),
            "outcome": outcome,
            "reward": reward,
            "passed": int(reward is not None and reward >= passes.get(self.environment, 1.0)),
            "stop_reason": _text(row.get("stop_reason"), 100) or None,
            "mask": _text(row.get("mask"), 300) or None,
            "stage": (_text(row.get("stage"), 100) or "unknown") if failed else None,
            "kind": (_text(row.get("kind"), 100) or "unknown") if failed else None,
            "cause": _text(row.get("cause"), 500) if failed else None,
            "turns": len(calls) if isinstance(calls, list) else 0,
            "items": len(output),
            "input_tokens": _tokens(usage, "input_tokens"),
            "cached_tokens": _clamped(cached_tokens(usage)),
            "output_tokens": _tokens(usage, "output_tokens"),
            "tool_calls": sum(calls for calls, _ in self.tools.values()),
            "tool_errors": sum(errors for _, errors in self.tools.values()),
            "started": finite_number(response.get("created_at")),
            "model": _text(response.get("model"), 200) or None,
            "policy": _policy(calls),
            "verifier": _text(verifier_of(row.get("receipt")), 60) or None,
            "has_tokens": int(isinstance(calls, list) and any("prefix" in call for call in items_of(calls))),
            "parent": _text(row.get("parent"), 500) or None,
            "branch_turn": _integer(row.get("branch_turn")),
            "about": _text(asked(row), ABOUT),
        }
        timings = object_of(row.get("timings"))
        for stage in STAGES:
            seconds = timings.get(stage)
            self.columns[f"t_{stage}"] = finite_number(seconds) if seconds is not None else None


def key_of(environment: str, task_id: str, rollout_id: str) -> int:
    """What tells a rollout from all others of a run, in 63 bits."""
    named = "\0".join((environment, task_id, rollout_id)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big") >> 1


def task_id_of(row: Row) -> str:
    """The id of a row's task; a digest of its prompt where the row names none."""
    named = row.get("task_id", row.get("_ng_task_index"))
    if isinstance(named, (str, int)):
        return _text(str(named), 500)
    from ludus.task import digest  # pydantic is loaded for such rows only

    return digest({"asked": row.get("responses_create_params")})


def items_of(value: Any) -> list[Row]:
    """The JSON objects of a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> Row:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def storable(text: str) -> str:
    """A text without lone surrogates, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _tools(output: Iterable[Row], row: Row) -> dict[str, tuple[int, int]]:
    """The calls and the errors of each tool."""
    calls = Counter(_text(item.get("name"), 200) for item in output if item.get("type") == "function_call")
    errors: Counter[str] = Counter()
    for error in read_tool_errors(row):
        errors[_text(error["tool"], 200)] += error["count"]
    names = [*dict.fromkeys((*calls, *errors))][:MAX_NAMES]
    return {name: (calls[name], _clamped(errors[name])) for name in names}


def _values(row: Row) -> Iterator[tuple[str, str, float]]:
    """The reward's components and the numbers of the verdict, each with its kind."""
    components = object_of(row.get("reward_components"))
    for name, value in list(components.items())[:MAX_NAMES]:
        if (number := finite_number(value)) is not None:
            yield "component", _text(name, 100), number
    named = row.get("verdict_fields")
    for name in named[:MAX_NAMES] if isinstance(named, list) else ():
        value = row.get(name) if isinstance(name, str) else None
        if isinstance(value, (bool, int, float)) and (number := finite_number(float(value))) is not None:
            yield "value", _text(name, 100), number


def _policy(calls: Any) -> str | None:
    versions = dict.fromkeys(
        _text(str(call["policy_version"]), 60) for call in items_of(calls) if call.get("policy_version") is not None
    )
    return " ".join(list(versions)[:8]) or None


def _text(value: Any, most: int) -> str:
    return storable(value[:most]) if isinstance(value, str) else ""


def _integer(value: Any) -> int:
    return _clamped(value) if isinstance(value, int) else 0


def _tokens(usage: Row, name: str) -> int | None:
    """A recorded count of tokens. None where none is recorded, which is not 0."""
    return _clamped(token_count(usage, name)) if type(usage.get(name)) is int else None


def _clamped(value: int) -> int:
    return max(-(2**62), min(value, 2**62))
