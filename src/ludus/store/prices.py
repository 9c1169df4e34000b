"""A price list: what tokens cost, by model. Nothing is built in, because prices change.

    gpt-5-mini: {input: 0.25, cached: 0.025, output: 2.00}   # for a million tokens
    judge: {input: 1.25, output: 10.00}

The name of a model is the one in the endpoint's answers, or the one in `run.json`. `judge` and `user` are the prices of
a verifier's judge and of a simulated user.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from ludus.dialects.usage import cached_tokens, token_count
from ludus.errors import UserError
from ludus.runtime.settings import checked, read_yaml
from ludus.store.statistics import ExactSum

#: How many models without a price are named.
MAX_NAMED = 20

_MILLION = 1_000_000


class Price(BaseModel):
    """The prices of a million tokens. Without `cached`, cached input costs as much as other input."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    #: for a million input tokens
    input: NonNegativeFloat
    #: for a million output tokens
    output: NonNegativeFloat
    cached: NonNegativeFloat | None = None

    def cost(self, usage: dict[str, Any]) -> float:
        """The price of the tokens of a usage."""
        read, cached = token_count(usage, "input_tokens"), cached_tokens(usage)
        price = self.input if self.cached is None else self.cached
        return ((read - cached) * self.input + cached * price + token_count(usage, "output_tokens") * self.output) / (
            _MILLION
        )


def read_prices(path: Path) -> dict[str, Price]:
    """The price list in a YAML file."""
    content = read_yaml(path, "price list")
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} holds no price list", "Write lines such as NAME: {input: 0.25, output: 2.0}")
    for name, price in content.items():
        if not isinstance(price, dict):
            raise UserError(f"{path}: the price of {name} is {price!r:.40}", "Write {input: 0.25, output: 2.0}")
    return {str(name): checked(Price, price, f"{path}: {name}") for name, price in content.items()}


class Costs:
    """The cost of attempts. Tokens of a model without a price are counted separately: a cost is never guessed."""

    def __init__(self, prices: dict[str, Price]) -> None:
        self._prices = prices
        self._total: ExactSum | None = None
        self._unpriced: dict[str, int] = {}  # tokens by model

    def add(self, names: tuple[str, ...], usage: dict[str, Any]) -> None:
        """Add the tokens of a model. The first of its names with a price counts."""
        tokens = token_count(usage, "input_tokens") + token_count(usage, "output_tokens")
        if not self._prices or not tokens:
            return
        for name in names:
            if name in self._prices:
                self._total = self._total or ExactSum()
                self._total.add(self._prices[name].cost(usage))
                return
        name = names[0] if names and (names[0] in self._unpriced or len(self._unpriced) < MAX_NAMED) else "other models"
        self._unpriced[name] = self._unpriced.get(name, 0) + tokens

    def summary(self, completed: int) -> dict[str, Any] | None:
        """The total, its share for a completed rollout, and the tokens without a price; None without a price list.

        The total is that of the tokens with a price, or None if there are none.
        """
        if not self._prices:
            return None
        total = self._total.value if self._total is not None else None
        return {
            "total": total,
            "per_completed": total / completed if completed and total is not None else None,
            "unpriced_tokens": dict(sorted(self._unpriced.items())),
        }
