"""How long the stub model takes to answer: a number of seconds, or a distribution to draw from.

| spec | seconds |
| --- | --- |
| `1` | one, always |
| `0.5..2` | evenly between the two |
| `exp:1` | exponential, with this mean |
| `lognormal:1,0.5` | log-normal: the median, and the standard deviation of the logarithm |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from ludus.errors import UserError

#: The longest delay: an hour.
LONGEST = 3600.0


@dataclass(frozen=True)
class Delay:
    """A distribution of delays. `kind` is `fixed`, `uniform`, `exp` or `lognormal`."""

    kind: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Delay:
        """Read a spec. Raises a UserError for anything else."""
        kind, colon, rest = text.partition(":")
        try:
            if not colon and ".." in text:
                low, high = map(float, text.split(".."))
                delay = cls("uniform", low, high)
            elif not colon:
                delay = cls("fixed", float(text))
            elif kind == "exp":
                delay = cls("exp", float(rest))
            elif kind == "lognormal":
                median, sigma = map(float, rest.split(","))
                delay = cls("lognormal", median, sigma)
            else:
                raise ValueError
        except ValueError as error:
            raise _wrong(text) from error
        if not delay._is_valid():
            raise _wrong(text)
        return delay

    def draw(self, random: Random) -> float:
        """One delay, in seconds."""
        if self.kind == "fixed":
            return self.first
        if self.kind == "uniform":
            return random.uniform(self.first, self.second)
        if self.kind == "exp":
            drawn = random.expovariate(1 / self.first) if self.first else 0.0
        else:
            drawn = self.first * math.exp(random.gauss(0.0, self.second))
        return min(drawn, LONGEST)

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        if self.kind == "uniform":
            return (self.first + self.second) / 2
        return self.first * math.exp(self.second**2 / 2) if self.kind == "lognormal" else self.first

    def _is_valid(self) -> bool:
        if not 0 <= self.first <= LONGEST:
            return False
        if self.kind == "uniform":
            return self.first <= self.second <= LONGEST
        return self.kind != "lognormal" or 0 <= self.second <= 5


def _wrong(text: str) -> UserError:
    return UserError(
        f"{text[:40]!r} is not a delay of up to {LONGEST:.0f} s", "Write 1, 0.5..2, exp:1 or lognormal:1,0.5 (seconds)"
    )
