"""Weights of environments in a mix: `--mix math=0.6,tools=0.4`.

A mix never repeats a row to reach its weights. It ends when one environment runs out of rows, so the scarcest bounds
the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from ludus.errors import UserError, did_you_mean

_EXAMPLE = "Example: --mix math=0.6,tools=0.4"


def parse_numbers(option: str, text: str, example: str) -> dict[str, float]:
    """The positive numbers of an option: `math=0.6,tools=0.4`."""
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.rpartition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number) or number <= 0:
            raise UserError(f"{option} {part.strip():.60} is not NAME=NUMBER with a number above 0", example)
        if name in numbers:
            raise UserError(f"{option} names {name:.60} twice", "Name it once")
        numbers[name] = number
    return numbers


def parse_mix(text: str) -> dict[str, float]:
    """The weights of `--mix`, by the names of environments."""
    return parse_numbers("--mix", text, _EXAMPLE)


def check_mix(weights: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """The weights in the order of the environments' names, adding up to 1. Each environment must have one."""
    known = list(names)
    if len(known) < 2:
        raise UserError("--mix needs two environments or more", "Name them with --env")
    for name, weight in weights.items():
        if name not in known:
            raise UserError(f"--mix names {name:.60}, which is not part of this mix", did_you_mean(name, known))
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            raise UserError(f"--mix {name}={weight!r:.40} is not a number above 0", _EXAMPLE)
    for name in known:
        if name not in weights:
            raise UserError(f"--mix has no weight for {name}", f"Add {name}=WEIGHT, or leave the environment out")
    total = math.fsum(weights.values())
    return {name: weights[name] / total for name in known}


def turns(weights: Mapping[str, float]) -> Iterator[str]:
    """The environment of each next row, without end: after every row the counts are close to the weights."""
    owed = dict.fromkeys(weights, 0.0)
    while True:
        for name, weight in weights.items():
            owed[name] += weight
        chosen = max(owed, key=owed.__getitem__)
        owed[chosen] -= 1.0
        yield chosen
