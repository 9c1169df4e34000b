"""One game of two players: whose turn it is, what that player is shown, and how the game ended.

TextArena draws from Python's one global generator. A match keeps a state of its own for it, so that matches that run at
the same time do not disturb each other and a match can be replayed from its moves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ludus_lab.needs import require
from ludus_lab.textarena.positions import read

#: A move: the last text in square brackets of an answer. The game and the other player see nothing else of it.
_MOVE = re.compile(r"\[[A-Za-z0-9 ]{1,20}\]")

Script = Literal["random", "expert"]


class Match:
    """A game in progress. Seats without a model are played by a script."""

    def __init__(self, game: str, seed: int, scripted: dict[int, Script]) -> None:
        require("ludus_lab.textarena")
        import textarena

        self._game, self._scripted = game, scripted
        self._random = random.Random(seed)  # of scripted players
        self._state: Any = None
        self._shown: dict[int, list[str]] = {0: [], 1: []}
        self.moves = 0
        self.invalid = {0: 0, 1: 0}
        with self._own_randomness():
            self._env = textarena.make(f"{game}-raw")
            self._env.reset(num_players=2, seed=seed)
        self._play_scripted()

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return bool(self._env.state.done)

    @property
    def seat(self) -> int:
        """The seat whose turn it is: 0 or 1."""
        return int(self._env.state.current_player_id)

    def show(self) -> str:
        """What the player at the seat is shown now: all messages since that player's last turn."""
        text = self._new_messages()
        self._shown[self.seat].append(text)
        return text

    def play(self, answer: str) -> None:
        """Play the move in an answer for the player at the seat, and the moves of scripted players after it."""
        self._step(move_of(answer))
        self._play_scripted()

    def scores(self) -> dict[int, float]:
        """The score of each seat: 1 is a win, 0.5 a draw, 0 a loss. Nobody has a score in a game that is not over."""
        rewards = self._env.state.rewards if self.over else None
        return {seat: (1 + rewards[seat]) / 2 for seat in (0, 1)} if rewards else {0: 0.0, 1: 0.0}

    def reason(self) -> str:
        """Why the game ended, in the game's words."""
        return str(self._env.state.game_info[0].get("reason", "")) if self.over else "not finished"

    def _play_scripted(self) -> None:
        while not self.over and self.seat in self._scripted:
            self._shown[self.seat].append(self._new_messages())
            position = read(self._game, "\n".join(self._shown[self.seat]))
            is_expert = self._scripted[self.seat] == "expert"
            self._step(position.best() if is_expert else self._random.choice(position.moves))

    def _step(self, move: str) -> None:
        seat = self.seat
        with self._own_randomness():
            self._env.step(move)
        self.moves += 1
        self.invalid[seat] += bool(self._env.state.game_info[seat]["invalid_move"] or self._env.state.error_count)

    def _new_messages(self) -> str:
        from textarena import ObservationType

        seat, messages = self._env.get_observation()
        own = ObservationType.PLAYER_ACTION
        return "\n".join(text.strip() for sender, text, kind in messages if not (kind is own and sender == seat))

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        before = random.getstate()
        if self._state is not None:
            random.setstate(self._state)
        try:
            yield
        finally:
            self._state = random.getstate()
            random.setstate(before)


def move_of(answer: str) -> str:
    """The last text in square brackets, or nothing, which no game takes for a move."""
    moves = _MOVE.findall(answer)
    return moves[-1] if moves else ""
