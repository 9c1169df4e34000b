"""NetHack, a few actions in each answer, until a depth or a score is reached.

The model's text only chooses among named keys. The dungeon follows from the row's seed, so a rollout can be replayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

import ludus
from ludus import Game, ResourcesConfig, Response, Step, Verdict
from ludus_lab.needs import require
from ludus_lab.nethack.actions import actions_of, key_of

HOW_TO_ACT = "Answer with actions, such as <actions>north, far east, search</actions>."

#: The colour of doors on the map: an open one is drawn like a wall otherwise.
_DOOR_COLOUR = 3


class NetHack(Game):
    """One game, its screen as text, and how far it got."""

    class Task(ludus.Task):
        #: the seed of the dungeon
        seed: int = Field(0, ge=0, lt=2**31)
        #: role, race, alignment and gender
        character: str = Field("val-dwa-law-fem", pattern=r"^[a-z]{3}(-[a-z]{3}){3}$")
        #: what must reach `target`: the deepest level, or the score
        goal: Literal["depth", "score"] = "depth"
        target: int = Field(2, ge=1, le=10**7)
        #: how many answers the model has
        answers: int = Field(60, ge=1, le=5000)

    class Config(ResourcesConfig):
        """Settings of the turns."""

        #: The most actions in one answer.
        actions: PositiveInt = 20

        #: How many answers in a row without actions get a reminder; the next one ends the game.
        reminders: NonNegativeInt = 2

    config: Config
    _game: Any = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[None]:
        require(__package__)
        yield

    async def reset(self, task: Task) -> str:
        from nle import nethack

        await self.close()
        self._game = nethack.Nethack(
            observation_keys=("tty_chars", "tty_colors", "tty_cursor", "blstats", "misc"),
            playername=f"Agent-{task.character}",
            ttyrec=None,
            fix_moon_phase=True,
        )
        self._game.set_initial_seeds(task.seed, task.seed + 1, False)
        self._seen = self._game.reset()
        self.answers = self.played = self._without_actions = self.depth = self.score = 0
        self.is_over = False
        self._note_progress()
        aim = f"reach dungeon level {task.target}" if task.goal == "depth" else f"score {task.target} points"
        return f"Your goal: {aim} with {task.answers} answers.\n{self._shown()}"

    async def step(self, task: Task, response: Response) -> Step:
        self.answers += 1
        names = actions_of(response.output_text, self.config.actions)
        if names is None:
            return self._remind(task)
        self._without_actions, note = 0, ""
        for name in names:
            key = key_of(name, self._is_asked())
            if key is None:
                note = f"The game asks for nothing now, so {name!r} was not pressed, nor what came after it.\n"
                break
            self._seen, self.is_over = self._game.step(key)
            self.played += 1
            self._note_progress()
            if self.is_over or self._progress(task) >= 1:
                break
        if self._progress(task) >= 1:
            return Step(reward=1.0, terminated=True, info=self._info("goal"))
        if self.is_over:
            return Step(terminated=True, info=self._info("dead"))
        return self._next(task, note)

    async def verify(self, task: Task, response: Response) -> Verdict:
        verdict = await super().verify(task, response)
        progress = self._progress(task)
        verdict.components = {"progress": progress, "depth": float(self.depth), "score": float(self.score)}
        return verdict

    async def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None

    def _remind(self, task: Task) -> Step:
        self._without_actions += 1
        if self._without_actions > self.config.reminders:
            return Step(terminated=True, info=self._info("no actions"))
        return self._next(task, f"There are no actions to play in this answer. {HOW_TO_ACT}\n")

    def _next(self, task: Task, note: str) -> Step:
        if self.answers >= task.answers:
            return Step(truncated=True, info=self._info("out of answers"))
        return Step(f"{note}{self._shown()}")

    def _note_progress(self) -> None:
        from nle import nethack

        numbers = self._seen[3]
        self.depth = max(self.depth, int(numbers[nethack.NLE_BL_DEPTH]))
        self.score = max(self.score, int(numbers[nethack.NLE_BL_SCORE]))

    def _progress(self, task: Task) -> float:
        reached = self.depth if task.goal == "depth" else self.score
        return min(1.0, reached / task.target)

    def _is_asked(self) -> bool:
        """Whether the game waits for a letter, a line of text, or a choice in a menu."""
        return bool(self._seen[4].any())

    def _info(self, end: str) -> dict[str, Any]:
        return {"end": end, "depth": self.depth, "score": self.score, "actions": self.played}

    def _shown(self) -> str:
        characters, colours, cursor, _, _ = self._seen
        lines = [
            "".join(
                "'" if mark in b"|-" and colour == _DOOR_COLOUR and 0 < row < 22 else chr(mark)
                for mark, colour in zip(marks, line_colours, strict=True)
            ).rstrip()
            for row, (marks, line_colours) in enumerate(zip(characters.tolist(), colours.tolist(), strict=True))
        ]
        asks = "The game asks you for something.\n" if self._is_asked() else ""
        return f"{asks}Cursor: column {cursor[1]}, line {cursor[0]}\n" + "\n".join(lines).rstrip()
