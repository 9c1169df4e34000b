"""Players by script, as models: `--set agent.opponent=scripted:ludus_lab.textarena.players:expert_player`."""

from __future__ import annotations

import random

from ludus import Request
from ludus.response import texts_of
from ludus_lab.textarena.positions import Position, game_of, read


def expert_player(request: Request) -> str:
    """The best move that the script of the game knows."""
    return position_of(request).best()


def random_player(request: Request) -> str:
    """A legal move that follows from the request's seed and from what was shown."""
    position = position_of(request)
    return random.Random(f"{request.seed} {len(request.input)}").choice(position.moves)


def position_of(request: Request) -> Position:
    """The position of the player who is asked."""
    shown = "\n".join(texts_of(item) for item in request.input if item.get("role") == "user")
    return read(game_of(shown), shown)
