"""Any environment with Gymnasium's interface, played in text: observations are written out, actions are read.

Rewards, ends and truncations are the environment's own. An answer without an action that can be played is answered by
what the actions are, and changes nothing; after too many of those in a row the game is given up.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Self

from pydantic import Field, FiniteFloat, NonNegativeInt

import ludus
from ludus import Failure, Game, ResourcesConfig, Response, Step, Verdict
from ludus.environments.gymnasium.finding import Found, find_game
from ludus.environments.gymnasium.spaces import MOST_NUMBERS, plain_picture, rendered
from ludus.graders.rows import Integer
from ludus.runtime.threads import in_thread


class Gymnasium(Game):
    """One environment, made for one rollout and closed with it. Its methods run on threads, one at a time."""

    class Task(ludus.Task):
        #: What the environment is reset with; without it the rollout's own seed is.
        seed: Annotated[Integer, Field(ge=0)] | None = None

    class Config(ResourcesConfig):
        """Which environment, and how it is played."""

        #: An id of Gymnasium's, or `module:Class`.
        id: str
        #: Arguments for making it, such as `{is_slippery: false}`.
        make: dict[str, Any] = {}
        #: What the model is told before it starts; by default what the environment's docstring says.
        rules: str | None = None
        #: How many answers in a row without a legal action are answered by a reminder, before the game is given up.
        reminders: NonNegativeInt = 2
        #: The reward of the step that gives it up.
        forfeit: FiniteFloat = 0.0

    config: Config
    shared: Found

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Found]:
        yield await in_thread(find_game, config.id, config.make)

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._game: Any = None
        self._alone = threading.Lock()
        self._unread = self.invalid_actions = 0

    async def open(self, task: Task) -> None:
        await self._off_the_loop(self._make)

    async def reset(self, task: Task) -> str:
        self._unread = self.invalid_actions = 0
        seed = task.seed if task.seed is not None else self.seed
        seen = await self._off_the_loop(self._reset, seed)
        name = self.config.id.rpartition(":")[2]
        rules = self.shared.rules if self.config.rules is None else self.config.rules
        return "\n\n".join(filter(None, [f"You play {name}.", rules, self._how_to_act(), seen]))

    async def step(self, task: Task, response: Response) -> Step:
        action = self.shared.actions.read(response.output_text)
        if action is None:
            return self._remind()
        self._unread = 0
        step: Step = await self._off_the_loop(self._step, action)
        return step

    async def verify(self, task: Task, response: Response) -> Verdict:
        verdict = await super().verify(task, response)
        verdict.values["invalid_actions"] = self.invalid_actions
        return verdict

    async def close(self) -> None:
        await self._off_the_loop(self._close)

    def fork(self) -> Self:
        """Copy the environment too. Most that are written in Python can be; where one cannot, nothing is copied."""
        with self._alone:
            return self.copied("_alone")

    def _remind(self) -> Step:
        self._unread += 1
        self.invalid_actions += 1
        if self._unread > self.config.reminders:
            return Step(reward=self.config.forfeit, truncated=True, info={"forfeit": True})
        return Step(f"No legal action was found in your answer.\n{self._how_to_act()}")

    def _how_to_act(self) -> str:
        actions = self.shared.actions
        return f"Your action is {actions.described}. Write it as <action>{actions.example}</action>."

    async def _off_the_loop(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a method of the environment on a thread. One that outlives its deadline keeps the others waiting."""

        def work() -> Any:
            with self._alone:
                return function(*args)

        return await in_thread(work)

    def _make(self) -> None:
        self._game = self.shared.make()

    def _reset(self, seed: int) -> str:
        observation, info = _parts(self._game.reset(seed=seed), "reset", 2)
        return self._seen(observation, plain(info))

    def _step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = _parts(self._game.step(action), "step", 5)
        told = plain(info)
        return Step(self._seen(observation, told), float(reward), bool(terminated), bool(truncated), info=told)

    def _seen(self, observation: Any, info: dict[str, Any]) -> str:
        """What the model sees: the observation, a picture where the environment draws one, and what can be done."""
        parts = [rendered(observation)]
        if not isinstance(observation, str):
            parts = [f"Observation: {parts[0]}" if "\n" not in parts[0] else f"Observation:\n{parts[0]}"]
        if getattr(self._game, "render_mode", None) == "ansi":
            parts.append(plain_picture(str(self._game.render())))
        mask = info.get("action_mask")
        if isinstance(mask, list) and any(mask):
            parts.append(f"Actions with an effect now: {', '.join(str(n) for n, open in enumerate(mask) if open)}")
        return "\n".join(filter(None, parts))

    def _close(self) -> None:
        game, self._game = self._game, None
        if hasattr(game, "close"):
            game.close()


def plain(value: Any) -> Any:
    """A value as JSON has it: small arrays become lists, and what is neither number nor text is described."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist") and getattr(value, "size", 1) <= MOST_NUMBERS:
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"{value!r:.200}"


def _parts(returned: Any, method: str, count: int) -> tuple[Any, ...]:
    if not isinstance(returned, tuple) or len(returned) != count or not isinstance(returned[-1], dict):
        raise Failure(
            "bad_game", f"{method} must return {count} values, the last of them a dict: got {returned!r:.120}"
        )
    return returned
