"""Chess against Stockfish: the model plays the side to move of the row's position, a move in each answer.

The model's text only chooses among the legal moves of the board that we keep. Nothing of it reaches the engine.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

import ludus
from ludus import Failure, Game, ResourcesConfig, Response, Step, Verdict
from ludus_lab.chess.engine import Engines, engines

HOW_TO_MOVE = "Answer with one move, such as <move>e2e4</move> or <move>Nf3</move>."

_MOVE = re.compile(r"<move>\s*([A-Za-z0-9+#=-]{2,10})\s*</move>")


class Chess(Game):
    """A board, the engine's replies, and the engine's judgement of each move."""

    class Task(ludus.Task):
        #: the position, in Forsyth-Edwards Notation; the model plays the side to move
        fen: str = Field(max_length=100)
        #: `win`: only a win is paid. `hold`: a draw is paid too
        goal: Literal["win", "hold"] = "win"
        #: how many moves the model has
        moves: int = Field(100, ge=1, le=1000)

    class Config(ResourcesConfig):
        """Settings of the opponent."""

        #: Nodes of each search: the strength of the opponent and of the judge.
        nodes: PositiveInt = 5000

        #: The share of the opponent's moves that are random. They follow from the rollout's seed.
        mistakes: float = Field(0.0, ge=0, le=1)

        #: How many answers in a row without a legal move get a reminder; the next one loses the game.
        reminders: NonNegativeInt = 2

        #: Engine processes of a worker; one for each core if null.
        engines: PositiveInt | None = None

    config: Config
    shared: Engines
    _random: random.Random | None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Engines]:
        async with engines(config.engines) as shared:
            yield shared

    async def reset(self, task: Task) -> str:
        self.board, self._random = _board(task.fen), None
        self.colour, self.moves, self._without_move = self.board.turn, 0, 0
        self.lost: list[float] = []  #: the expected score that each move of the model gave away
        return f"You play {_side(self.colour)}. {_goal(task)}\n{self._shown()}"

    async def step(self, task: Task, response: Response) -> Step:
        move = move_of(response.output_text, self.board)
        if move is None:
            return self._remind(task)
        self._without_move, self.moves = 0, self.moves + 1
        best = await self.shared.search(self.board, self.config.nodes)
        self.board.push(move)
        if self.board.outcome(claim_draw=True) is not None:
            self.lost.append(max(0.0, best.expected - self._score()))
            return self._over(task)
        reply = await self.shared.search(self.board, self.config.nodes)
        self.lost.append(max(0.0, best.expected - (1 - reply.expected)))
        if self.moves >= task.moves:
            return self._cut_short(task, 1 - reply.expected)
        said = self._opponent_plays(reply.move)
        if self.board.outcome(claim_draw=True) is not None:
            return self._over(task)
        return Step(f"{said}\n{self._shown()}")

    async def verify(self, task: Task, response: Response) -> Verdict:
        verdict = await super().verify(task, response)
        accuracy = 1 - sum(self.lost) / len(self.lost) if self.lost else 0.0
        verdict.components = {"goal": verdict.reward, "accuracy": accuracy}
        return verdict

    def _opponent_plays(self, best: Any) -> str:
        if self.config.mistakes:
            self._random = self._random or random.Random(self.seed)
            if self._random.random() < self.config.mistakes:
                best = self._random.choice(sorted(self.board.legal_moves, key=str))
        said = f"{_side(not self.colour)} plays {self.board.san(best)}."
        self.board.push(best)
        return said

    def _remind(self, task: Task) -> Step:
        """Ask again, or end the game after too many reminders: refusing to move must not pay more than losing."""
        self._without_move += 1
        if self._without_move > self.config.reminders:
            return Step(terminated=True, info=self._info("no legal move"))
        return Step(f"That is not a legal move here. {HOW_TO_MOVE}\n{self._shown()}")

    def _score(self) -> float:
        """The score of a game that is over, for the model."""
        winner = self.board.outcome(claim_draw=True).winner
        return 0.5 if winner is None else float(winner == self.colour)

    def _over(self, task: Task) -> Step:
        score = self._score()
        reached = score == 1.0 or (task.goal == "hold" and score == 0.5)
        return Step(
            reward=float(reached), terminated=True, info=self._info({1.0: "win", 0.5: "draw"}.get(score, "loss"))
        )

    def _cut_short(self, task: Task, expected: float) -> Step:
        """The moves are used up: a win needs mate on the board, and `hold` a position that is not lost."""
        reached = task.goal == "hold" and expected >= 0.25
        return Step(reward=float(reached), truncated=True, info=self._info("out of moves"))

    def _info(self, result: str) -> dict[str, Any]:
        return {"result": result, "moves": self.moves, "fen": self.board.fen()}

    def _shown(self) -> str:
        return f"Position: {self.board.fen()}\n{self.board}\n{HOW_TO_MOVE}"


def move_of(text: str, board: Any) -> Any:
    """The legal move between the last pair of tags, in UCI's or in standard algebraic notation; None without one."""
    tags = _MOVE.findall(text)
    if not tags:
        return None
    for read in (board.parse_uci, board.parse_san):
        try:
            move = read(tags[-1])
        except ValueError:
            continue
        if move in board.legal_moves:  # a null move is read without an error, and would pass the turn
            return move
    return None


def _board(fen: str) -> Any:
    import chess

    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise Failure("bad_row", f"fen: {error}") from None
    if not board.is_valid() or board.is_game_over():
        problem = "the game is over" if board.is_valid() else "no such position can occur"
        raise Failure("bad_row", f"fen {fen!r}: {problem}")
    return board


def _side(is_white: bool) -> str:
    return "White" if is_white else "Black"


def _goal(task: Any) -> str:
    aim = "Win the game" if task.goal == "win" else "Do not lose the game"
    return f"{aim}. You have {task.moves} move{'s' if task.moves > 1 else ''}."
