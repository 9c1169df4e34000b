"""Any environment with Gymnasium's interface, played in text: observations become text, answers become actions.

Rewards, termination and truncation come from the environment. An answer without a legal action gets a reminder of the
actions and does not reach the environment. After too many such answers in a row the game is truncated.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Self

from pydantic import Field, FiniteFloat, NonNegativeInt

import ludus
from ludus import Failure, Game, ResourcesConfig, Response, Step, Verdict
from ludus.environments.gymnasium.loading import LoadedGame, load_game
from ludus.environments.gymnasium.spaces import MOST_NUMBERS, plain_picture, rendered
from ludus.graders.rows import Integer
from ludus.runtime.threads import in_thread


class Gymnasium(Game):
    """One environment for one rollout. Its methods run in threads, one at a time."""

    class Task(ludus.Task):
        #: The seed for the environment's reset; by default the rollout's seed.
        seed: Annotated[Integer, Field(ge=0)] | None = None

    class Config(ResourcesConfig):
        """Which environment, and how it is played."""

        #: A Gymnasium id, or `module:Class`.
        id: str
        #: Arguments of the environment, such as `{is_slippery: false}`.
        make: dict[str, Any] = {}
        #: The rules in the first message; by default from the environment's docstring.
        rules: str | None = None
        #: How many answers in a row without a legal action get a reminder; the next one ends the game.
        reminders: NonNegativeInt = 2
        #: The reward of that last step.
        forfeit: FiniteFloat = 0.0

    config: Config
    shared: LoadedGame

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[LoadedGame]:
        yield await in_thread(load_game, config.id, config.make)

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._game: Any = None
        self._lock = threading.Lock()
        self._without_action = self.invalid_actions = 0

    async def open(self, task: Task) -> None:
        await self._in_thread(self._make)

    async def reset(self, task: Task) -> str:
        self._without_action = self.invalid_actions = 0
        seed = task.seed if task.seed is not None else self.seed
        seen = await self._in_thread(self._reset, seed)
        name = self.config.id.rpartition(":")[2]
        rules = self.shared.rules if self.config.rules is None else self.config.rules
        return "\n\n".join(filter(None, [f"You play {name}.", rules, self._how_to_act(), seen]))

    async def step(self, task: Task, response: Response) -> Step:
        action = self.shared.actions.read(response.output_text)
        if action is None:
            return self._remind()
        self._without_action = 0
        step: Step = await self._in_thread(self._step, action)
        return step

    async def verify(self, task: Task, response: Response) -> Verdict:
        verdict = await super().verify(task, response)
        verdict.values["invalid_actions"] = self.invalid_actions
        return verdict

    async def close(self) -> None:
        await self._in_thread(self._close)

    def fork(self) -> Self:
        """Copy the session with its environment. Raises a `Failure` if the environment cannot be copied."""
        with self._lock:
            return self.copied("_lock")

    def _remind(self) -> Step:
        self._without_action += 1
        self.invalid_actions += 1
        if self._without_action > self.config.reminders:
            return Step(reward=self.config.forfeit, truncated=True, info={"forfeit": True})
        return Step(f"No legal action was found in your answer.\n{self._how_to_act()}")

    def _how_to_act(self) -> str:
        actions = self.shared.actions
        return f"Your action is {actions.described}. Write it as <action>{actions.example}</action>."

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a method of the environment in a thread. A method past its deadline still blocks the next ones."""

        def work() -> Any:
            with self._lock:
                return function(*args)

        return await in_thread(work)

    def _make(self) -> None:
        self._game = self.shared.make()

    def _reset(self, seed: int) -> str:
        observation, info = _checked(self._game.reset(seed=seed), "reset", 2)
        return self._shown(observation, as_json(info))

    def _step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = _checked(self._game.step(action), "step", 5)
        info = as_json(info)
        return Step(self._shown(observation, info), float(reward), bool(terminated), bool(truncated), info=info)

    def _shown(self, observation: Any, info: dict[str, Any]) -> str:
        """What the model sees: the observation, the text picture if there is one, and the useful actions if known."""
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


def as_json(value: Any) -> Any:
    """A value as JSON: small arrays become lists, and other objects become their `repr`."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if hasattr(value, "tolist") and getattr(value, "size", 1) <= MOST_NUMBERS:
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"{value!r:.200}"


def _checked(returned: Any, method: str, count: int) -> tuple[Any, ...]:
    if not isinstance(returned, tuple) or len(returned) != count or not isinstance(returned[-1], dict):
        raise Failure(
            "bad_game", f"{method} must return {count} values, the last of them a dict: got {returned!r:.120}"
        )
    return returned
