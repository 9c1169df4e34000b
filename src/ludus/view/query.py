"""The search language: words and "phrases" of the text, and filters such as `reward:0 tool:search outcome:failed`.

A filter is `name:value`; `-` before a filter or a word excludes it. Numbers take `>`, `>=`, `<`, `<=` and `1..3`. All
parts must hold. Every value becomes a parameter of an SQL statement, never a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.view.schema import IS_CURRENT

#: The most parts of a query.
MAX_PARTS = 40

_NUMBERS = {
    "number": "r.id",
    "reward": "r.reward",
    "turns": "r.turns",
    "tokens": "r.output_tokens",
    "input": "r.input_tokens",
    "calls": "r.tool_calls",
    "errors": "r.tool_errors",
    "repeat": "r.repeat",
    "attempt": "r.attempt",
    "seconds": "r.t_total",
}
_WORDS = {
    "outcome": "r.outcome",
    "stop": "r.stop_reason",
    "stage": "r.stage",
    "kind": "r.kind",
    "model": "r.model",
    "id": "r.rollout_id",
    "task": "t.task_id",
    "env": "t.environment",
    "parent": "r.parent",
}
_CONTAINED = {"cause": "r.cause", "mask": "r.mask", "note": "n.note"}
FILTERS = sorted({*_NUMBERS, *_WORDS, *_CONTAINED, "tool", "tag", "policy", "passed", "all"})

_PART = re.compile(r'(?P<no>-)?(?:(?P<name>[a-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
_RANGE = re.compile(r"(?P<low>-?[\d.]+(?:e-?\d+)?)\.\.(?P<high>-?[\d.]+(?:e-?\d+)?)")
_COMPARED = re.compile(r"(?P<how>>=|<=|>|<|=)?(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)")

ROLLOUTS, TASKS, NOTES = "rollouts r", " JOIN tasks t ON t.id = r.task", " LEFT JOIN notes n ON n.key = r.key"
FROM = ROLLOUTS + TASKS + NOTES


@dataclass
class Query:
    """A query as conditions of an SQL statement over `FROM`."""

    conditions: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The condition."""
        return " AND ".join(self.conditions) or "1"

    @property
    def tables(self) -> str:
        """The tables that the condition needs."""
        where = self.where
        return ROLLOUTS + (TASKS if "t." in where else "") + (NOTES if "n." in where else "")

    def add(self, condition: str, *parameters: Any, negated: bool = False) -> None:
        """Add a condition. An unknown one (NULL) does not hold, so its negation does."""
        self.conditions.append(f"NOT ifnull(({condition}), 0)" if negated else f"({condition})")
        self.parameters += parameters


def parse_query(text: str) -> Query:
    """The conditions of a query. Without `attempt:` or `all:yes`, only the last attempt of a rollout is found."""
    query, every_attempt, parts = Query(), False, 0
    for part in _PART.finditer(text):
        parts += 1
        if parts > MAX_PARTS:
            raise UserError(f"a query has at most {MAX_PARTS} words and filters", "Leave some out")
        name, negated = part["name"], part["no"] is not None
        value = part["phrase"] if part["phrase"] is not None else part["word"]
        if name is None:
            _text(query, value, negated)
        elif name not in FILTERS:
            if part["phrase"] is None and "/" in value:  # an address such as https://...
                _text(query, f"{name}:{value}", negated)
                continue
            raise UserError(f"there is no filter `{name}:`", did_you_mean(name, FILTERS))
        elif name == "all":
            every_attempt = True
        else:
            every_attempt |= name == "attempt"
            _filter(query, name, value, negated)
    if not every_attempt:
        query.add("likelihood(r.final = 1, 0.98)")  # so that a list is read in its order, not sorted
    return query


def _filter(query: Query, name: str, value: str, negated: bool) -> None:
    if name in _NUMBERS:
        _number(query, name, value, negated)
    elif name in _WORDS:
        column = _WORDS[name]
        condition = f"{column} GLOB ?" if "*" in value else f"{column} = ?"
        query.add(condition, value, negated=negated)
    elif name in _CONTAINED:
        query.add(f"instr(lower({_CONTAINED[name]}), lower(?)) > 0", value, negated=negated)
    elif name == "tool":
        condition = "GLOB" if "*" in value else "="
        query.add(f"r.id IN (SELECT rollout FROM tools WHERE name {condition} ?)", value, negated=negated)
    elif name == "tag":
        query.add("instr(n.tags, ?) > 0", f" {value} ", negated=negated)
    elif name == "policy":
        query.add("instr(' ' || r.policy || ' ', ?) > 0", f" {value} ", negated=negated)
    else:
        passed = int(value not in ("no", "0", "false"))
        query.add(f"r.passed = {passed} AND r.outcome NOT IN ('failed', 'ended_early')", negated=negated)


def _number(query: Query, name: str, value: str, negated: bool) -> None:
    column = _NUMBERS[name]
    if value == "none":
        query.add(f"{column} IS NULL", negated=negated)
    elif (between := _RANGE.fullmatch(value)) is not None:
        low, high = _float(name, between["low"]), _float(name, between["high"])
        query.add(f"{column} BETWEEN ? AND ?", low, high, negated=negated)
    elif (compared := _COMPARED.fullmatch(value)) is not None:
        number = _float(name, compared["number"])
        query.add(f"{column} {compared['how'] or '='} ?", number, negated=negated)
    else:
        raise UserError(f"`{name}:` takes a number, not {value!r:.60}", f"Write {name}:0, {name}:>0.5 or {name}:1..3")


def _float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"`{name}:` takes a number, not {text!r:.60}") from None


def _text(query: Query, value: str, negated: bool) -> None:
    """A word or a phrase of the text. A word that ends in `*` is the beginning of a word."""
    begins = value.endswith("*")
    quoted = value.rstrip("*").replace('"', " ").replace("\0", " ")
    if not any(letter.isalnum() for letter in quoted):
        return
    match = f'"{quoted}"' + ("*" if begins else "")
    query.add(f"r.id IN (SELECT rowid FROM search.texts WHERE texts MATCH ? AND {IS_CURRENT})", match, negated=negated)
