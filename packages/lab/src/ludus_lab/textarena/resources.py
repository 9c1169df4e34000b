"""Games of TextArena for two players, judged by the game.

The verdict replays the match from the moves in the conversations of its players, so it needs nothing but the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Literal

from pydantic import Field, field_validator

import ludus
from ludus import Failure, Resources, ResourcesConfig, Response, Verdict
from ludus.errors import did_you_mean
from ludus.response import Item, is_message, texts_of
from ludus_lab.needs import require
from ludus_lab.textarena.match import Match, Script
from ludus_lab.textarena.positions import GAMES

Opponent = Literal["self", Script]


class Arena(Resources):
    """Makes matches, and replays them for their verdict."""

    judged_by_response = True

    class Task(ludus.Task):
        #: the game, by its name in TextArena
        game: str
        #: who plays against the policy: the policy itself, random legal moves, or a strong script
        opponent: Opponent = "self"
        #: the seat of the main thread; seat 0 moves first
        seat: Literal[0, 1] = 0
        #: the seed of dice, and of the moves of the opponent `random`
        seed: int = Field(0, ge=0, lt=2**31)

        @field_validator("game")
        @classmethod
        def _is_known(cls, game: str) -> str:
            if game not in GAMES:
                raise ValueError(f"{game!r:.60} is not a game of this environment. {did_you_mean(game, GAMES)}")
            return game

    @classmethod
    @asynccontextmanager
    async def share(cls, config: ResourcesConfig) -> AsyncIterator[None]:
        require(__package__)
        await asyncio.to_thread(import_module, "textarena")  # seconds: it imports clients of many models
        yield

    def match(self, task: Task) -> Match:
        """A new match of the row."""
        scripted: dict[int, Script] = {} if task.opponent == "self" else {1 - task.seat: task.opponent}
        return Match(task.game, task.seed, scripted)

    async def verify(self, task: Task, response: Response) -> Verdict:
        match, seat = self.match(task), int(task.seat)
        answers = {seat: answers_of(response.output)}
        if task.opponent == "self":
            answers[1 - seat] = _other_answers(task, response)
        while not match.over:
            answer = next(answers[match.seat], None)
            if answer is None:
                break
            match.play(answer)
        scores, invalid = match.scores(), match.invalid
        thread_rewards = {thread_name(task): scores[1 - task.seat]} if task.opponent == "self" else None
        return Verdict(
            scores[task.seat],
            thread_rewards=thread_rewards,
            game=task.game,
            finished=match.over,
            moves=match.moves,
            invalid_moves=invalid[task.seat],
            end=match.reason(),
        )


def thread_name(task: Arena.Task) -> str:
    """The name of the other player's thread."""
    return f"player_{1 - task.seat}"


def answers_of(items: list[Item]) -> Iterator[str]:
    """The text of each answer. An observation stands before each of them; an answer may have no item at all."""
    texts: list[str] = []
    for item in items:
        if item.get("role") == "user":
            texts.append("")
        elif is_message(item):
            texts = texts or [""]
            texts[-1] += texts_of(item)
    return iter(texts)


def _other_answers(task: Arena.Task, response: Response) -> Iterator[str]:
    for thread in response.threads:
        if thread.name == thread_name(task):
            return answers_of(thread.items[len(task.input) :])
    raise Failure("not_played", f"the response has no thread {thread_name(task)} with the other player's moves")
