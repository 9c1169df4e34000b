"""A scenario: the user's role, the required actions, and the facts that the model has to state."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ludus.environments.user_modeling.desk import Desk, money

PERSONAS = (
    "Friendly and a little slow; answers what is asked and nothing more.",
    "In a hurry; writes short messages.",
    "Polite and careful; likes to hear everything confirmed.",
    "Tired of waiting, but reasonable once somebody helps.",
    "New to all this; asks for things in plain words.",
)


@dataclass
class Scenario:
    """One conversation. `communicate` lists what the model must say, each with its accepted spellings."""

    goal: list[str]
    facts: dict[str, str]
    actions: list[dict[str, Any]] = field(default_factory=list)
    communicate: list[list[str]] = field(default_factory=list)
    refuses: list[str] = field(default_factory=list)
    belongings: dict[str, str] = field(default_factory=dict)
    unknown: str = ""

    def fields(self, rng: random.Random) -> dict[str, Any]:
        """The scenario as fields of a row."""
        user = {
            "persona": rng.choice(PERSONAS),
            "goal": "\n".join(self.goal),
            "facts": self.facts,
            "unknown": self.unknown,
            "refuses": self.refuses,
            "belongings": self.belongings,
        }
        return {"user": user, "actions": self.actions, "communicate": self.communicate}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """An action of the policy model."""
    return {"name": name, "arguments": arguments}


def by_user(name: str) -> dict[str, Any]:
    """An action that only the user can take."""
    return {"name": name, "arguments": {}, "by": "user"}


def amount(cents: int) -> list[str]:
    """The ways to write an amount."""
    written = money(cents)
    return [written, written[:-1]] if written.endswith("0") else [written]


def day(written: str) -> list[str]:
    """The ways to write a date."""
    when = date.fromisoformat(written)
    number, month = when.day, when.strftime("%B")
    suffix = "th" if 10 < number < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    ordinal = f"{number}{suffix}"
    words = [f"{number} {month}", f"{month} {number}", f"{ordinal} {month}", f"{ordinal} of {month}"]
    short = [f"{number} {month[:3]}", f"{month[:3]} {number}"]
    return [written, *words, *short, when.strftime("%d.%m.%Y"), when.strftime("%d/%m/%Y"), when.strftime("%m/%d/%Y")]


def pick(rng: random.Random, desk: Desk, query: str, *values: Any) -> dict[str, Any] | None:
    """One of the records that a query finds; None if there is none."""
    records = desk.all(query, *values)
    return rng.choice(records) if records else None
