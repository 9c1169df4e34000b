"""Endless rows: a game, an opponent, a seat and a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_args

from ludus.errors import UserError, did_you_mean
from ludus_lab.textarena.positions import GAMES
from ludus_lab.textarena.resources import Opponent

INSTRUCTION = (
    "You play a game against another player. In each answer, think briefly and end with one move in square brackets, "
    "as the game describes it. Only the last text in square brackets counts. A second invalid move in a row loses."
)


def stream(seed: int, *, game: str = "", opponent: str = "self") -> Iterator[dict[str, Any]]:
    """Rows of one game, by default of all games in turn, against one opponent."""
    if game and game not in GAMES:
        raise UserError(f"data.game {game!r:.60} is not a game", did_you_mean(game, GAMES))
    if opponent not in (opponents := get_args(Opponent)):
        raise UserError(f"data.opponent {opponent!r:.60} is not an opponent", did_you_mean(opponent, opponents))
    generator = random.Random(seed)
    while True:
        for name in [game] if game else GAMES:
            yield row(name, opponent, generator.randrange(2), generator.getrandbits(31))


def row(game: str, opponent: str, seat: int, seed: int) -> dict[str, Any]:
    """One row."""
    prompt = [{"role": "system", "content": INSTRUCTION}]
    return {
        "responses_create_params": {"input": prompt},
        "game": game,
        "opponent": opponent,
        "seat": seat,
        "seed": seed,
    }
