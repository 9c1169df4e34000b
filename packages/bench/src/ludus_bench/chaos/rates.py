"""How often each fault of `--chaos` happens, and whether it happens at a place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any
from zlib import crc32

from ludus.errors import UserError, did_you_mean
from ludus.runtime.numbers import whole_number

#: Faults that are counted instead of drawn, and the two numbers that the draws depend on.
_NUMBERS = ("seed", "round", "node_kill")

_EXAMPLE = "Example: --chaos seed=7,model_500=5%,tool_hang=1%"


@dataclass
class Chaos:
    """How often each fault happens, from 0 to 1. `node_kill` is how many nodes of a cluster are killed.

    - `worker_kill`: for each rollout that a worker finishes, the worker is killed
    - `model_500`, `model_hang`, `model_abort`: for each model call, it fails, is never answered, or is cut off
    - `tool_hang`: for each tool call, it never returns. `judge_down`: for each verdict, the verifier fails
    - `disk_full`: for each write of a journal, there is no space left at the moment
    """

    seed: int = 0
    worker_kill: float = 0.0
    model_500: float = 0.0
    model_hang: float = 0.0
    model_abort: float = 0.0
    tool_hang: float = 0.0
    judge_down: float = 0.0
    disk_full: float = 0.0
    node_kill: int = 0
    round: int = 0  #: another number in each resumed run, so that a rollout does not meet the same fault for ever

    @classmethod
    def parse(cls, text: str) -> Chaos:
        """Read `seed=7,model_500=5%`. A rate is a percentage, or a number from 0 to 1."""
        known = [fault.name for fault in fields(cls)]
        values: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name not in known:
                typed = [fault for fault in known if fault != "round"]  # only workers are told a round
                raise UserError(f"--chaos has no fault {name!r:.40}", did_you_mean(name, typed))
            values[name] = _number(name, value) if name in _NUMBERS else _rate(name, value)
            if not equals:
                raise UserError(f"--chaos: {name} has no value", _EXAMPLE)
        return cls(**values)

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in vars(self).items() if value)

    def strikes(self, fault: str, *place: Any) -> bool:
        """Whether a fault happens at a place."""
        rate = getattr(self, fault)
        drawn = crc32("/".join(map(str, (self.seed, self.round, fault, *place))).encode())
        return bool(drawn / 2**32 < rate)


def _rate(name: str, text: str) -> float:
    try:
        rate = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UserError(f"--chaos: {name} must be a percentage, such as 5%, not {text!r:.40}", _EXAMPLE)
    return rate


def _number(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise UserError(f"--chaos: {name} must be a whole number, not {text!r:.40}", _EXAMPLE)
    return number
