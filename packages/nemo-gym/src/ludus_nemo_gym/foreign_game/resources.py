"""The resources of a game server that is not Ludus's code: only its address is known here."""

from __future__ import annotations

from typing import Any

from ludus.game import Game, Step
from ludus.response import Response


class ForeignGame(Game):
    """Accepts any row. The rules and the rewards are on the server."""

    async def step(self, task: Any, response: Response) -> Step:
        """Not called: the server plays each turn."""
        raise RuntimeError("this game is played on its server")
