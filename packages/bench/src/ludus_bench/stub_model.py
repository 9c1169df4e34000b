"""The stub model without HTTP: it answers in the process that plays the rollouts, after a chosen delay."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from ludus.model import Request
from ludus.response import Response
from ludus_bench.delays import Delay
from ludus_bench.profile.synthetic import SyntheticModel


class StubModel(SyntheticModel):
    """A synthetic model that takes its time."""

    name = "stub"

    def __init__(self, delay: Delay, turns: int = 1) -> None:
        super().__init__(turns)
        self._delay, self._random = delay, Random()

    def __reduce__(self) -> tuple[Any, ...]:
        """Worker processes get a stub of their own."""
        return type(self), (self._delay, self._turns)

    async def respond(self, request: Request) -> Response:
        """Answer after a delay."""
        seconds = self._delay.draw(self._random)
        if seconds:
            await asyncio.sleep(seconds)
        return await super().respond(request)
