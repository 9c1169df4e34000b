"""Variants of a right answer: other ways to write it, and wrong answers that look like it.

These variants hold for any short answer. An environment with further rules (units, letter case, order) defines its own
variants in its `qualify.py`, and may call the functions here.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def preserving(gold: str, options: list[str]) -> dict[str, str]:
    """Other ways to write the same answer, which every verifier should accept."""
    return {"spaces": f"  {gold} ", "dollars": f"${gold}$"} if _NUMBER.fullmatch(gold) else {"spaces": f" {gold}  "}


def breaking(gold: str, options: list[str]) -> dict[str, str]:
    """Answers that mean something else."""
    if options:
        return other_options(gold, options)
    if _NUMBER.fullmatch(gold):
        return wrong_numbers(gold)
    return wrong_words(gold)


def other_options(gold: str, options: list[str]) -> dict[str, str]:
    """Other options, and the right option together with another one."""
    others = [option for option in options if option.strip().upper() != gold.strip().upper()]
    hedged = {"hedged": f"{gold} or {others[0]}", "hedged_first": f"{others[-1]}, {gold}"} if others else {}
    return {f"option_{other}": other for other in others[:8]} | hedged


def wrong_numbers(gold: str) -> dict[str, str]:
    """The wrong sign, one more, one less, ten times as much, and two answers at once."""
    value = float(gold)
    wrong = {"off_by_one": value + 1, "one_less": value - 1, "ten_times": value * 10, "sign": -value}
    texts = {name: _short(number) for name, number in wrong.items() if number != value}
    return texts | {"appended_digit": f"{gold}1", "hedged": f"{gold} or {_short(value + 1)}"}


def wrong_words(gold: str) -> dict[str, str]:
    """The right answer negated, hedged, cut in half, or with its words reversed."""
    words = gold.split()
    texts = {"negation": f"not {gold}", "hedged": f"{gold} or something else", "opposite": f"anything but {gold}"}
    if len(gold) > 3:
        texts["cut_short"] = gold[: len(gold) // 2]
    if len(words) > 2:
        texts["order"] = " ".join(reversed(words))
    return texts


def _short(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.10g}"
