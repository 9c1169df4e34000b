"""Games: environments that are played turn by turn.

`reset` prepares the game and may return a first observation. Then the model answers, and `step` turns each answer into
a reward and the next observation, until a step ends the game. `step` sees only the latest answer: keep the rest in
`self`, which is the session. The verdict is the sum of the steps' rewards, so a game needs no `verify`.

A game can be replayed from a recorded trajectory, because a model contributes only its answers. So a stored rollout can
be rescored, and a response that was played elsewhere can be judged.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.record import is_input
from ludus.resources import Resources
from ludus.response import Item, Response, function_call_output, texts_of
from ludus.runtime.signatures import def_or_async
from ludus.runtime.threads import awaited
from ludus.tools import not_found

#: Why a seeded session cannot be replayed. The message goes on with what the record does not show.
NO_SEED = "the record does not have the seed of its rollout, and does not show"


@dataclass(slots=True)
class Step:
    """The result of one answer of the model.

    The model sees `tool_outputs`, pairs of a function call's `call_id` and its output, and then `observation` as a user
    message. `terminated` means that the game reached its end, `truncated` that it was cut short. `info` is recorded and
    not shown to the model.
    """

    observation: str | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: list[tuple[str, str]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether this step ended the game."""
        return self.terminated or self.truncated

    def items(self) -> list[Item]:
        """The items that the model sees next."""
        outputs = [function_call_output(call_id, output) for call_id, output in self.tool_outputs]
        return [*outputs, *observation_items(self.observation)]


class Game(Resources):
    """Base of all games. Override `reset` and `step`; both may be plain `def`.

    class GuessTheNumber(Game):
        async def reset(self, task: Task) -> str:
            self.number = random.Random(self.seed).randint(1, 10)
            return "I think of a number from 1 to 10."

        async def step(self, task: Task, response: Response) -> Step:
            if response.output_text.strip() == str(self.number):
                return Step(reward=1.0, terminated=True)
            return Step("No. Try again.")
    """

    by_turns = True

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.steps: list[Step] = []  #: the steps so far
        self._begun = False

    @def_or_async
    async def reset(self, task: Any) -> str | None:
        """Prepare the first turn, and return the first observation, or None."""
        return None

    @def_or_async
    async def step(self, task: Any, response: Response) -> Step:
        """Play the model's latest answer, and return the result."""
        raise TypeError(f"{type(self).__name__} does not define step()")

    async def begin(self, task: Any) -> str | None:
        """Start the game from its beginning, and return its first observation."""
        self.steps, self._begun = [], True
        observation: str | None = await awaited(self.reset, task)
        return observation

    async def advance(self, task: Any, response: Response) -> Step:
        """Take one step and keep it. A function call that the step leaves unanswered gets the output "Not Found"."""
        if not self._begun or self.over:
            raise Failure("out_of_turn", f"the game {'is over' if self.over else 'has not begun'}")
        step = await awaited(self.step, task, response)
        if not isinstance(step, Step):
            raise Failure("bad_step", f"{type(self).__name__}.step must return a Step, not {type(step).__name__}")
        answered = {call_id for call_id, _ in step.tool_outputs}
        unknown = (call["call_id"] for call in response.function_calls if call["call_id"] not in answered)
        step.tool_outputs = [*step.tool_outputs, *((call_id, str(not_found())) for call_id in unknown)]
        self.steps.append(step)
        return step

    @property
    def begun(self) -> bool:
        """Whether the game has begun."""
        return self._begun

    @property
    def over(self) -> bool:
        """Whether the last step ended the game."""
        return bool(self.steps) and self.steps[-1].over

    async def verify(self, task: Any, response: Response) -> Verdict:
        """The sum of all steps' rewards. A game that has not begun is replayed from the response first.

        A game that was left before its end is truncated and keeps its rewards. Without a step there is no reward.
        """
        if not self._begun:
            await self.replay(task, response)
        if not self.steps:
            raise Failure("not_played", "the model never answered, so there is no step to reward")
        rewards, last = [step.reward for step in self.steps], self.steps[-1]
        truncated = last.truncated or not last.terminated
        return Verdict(
            sum(rewards), turn_rewards=rewards, terminated=last.terminated, truncated=truncated, info=last.info
        )

    async def replay(
        self, task: Any, response: Response, sizes: Iterable[int] | None = None
    ) -> list[tuple[int, str, str]]:
        """Replay a trajectory. Returns the turns where the game now shows something else than the record: the number
        of the turn, the recorded text, and the new text.

        `sizes` are the numbers of items of the answers. Without them an answer ends where the game shows something, so
        consecutive answers count as one.

        Raises a `Failure` of kind `drift` if the game begins differently now. If the record does not have its seed,
        every difference is such a failure, and so is a game that draws from the seed without showing what it drew.
        """
        return await self.follow_record(task, GameRecord(response, sizes))

    async def follow_record(self, task: Any, record: GameRecord) -> list[tuple[int, str, str]]:
        """Replay the turns of `record`, and return the turns that differ, as `replay` does.

        A game that has begun goes on: the record holds its next turns, from an answer on.
        """
        differing: list[tuple[int, str, str]] = []
        shown = observation_items(await self.begin(task)) if not self._begun else []
        opening, was_drawn = _text_of(shown), self.used_seed
        while True:
            recorded = record.shown(expects_message=bool(shown) and not _is_output(shown[-1]))
            if not recorded and not self.steps and opening == _last_message(task):
                recorded = shown  # NeMo Gym keeps the opening at the end of the input
            if (recorded or record.turns is not None) and _text_of(recorded) != _text_of(shown):
                self._differ(differing, _text_of(recorded), _text_of(shown))
            is_unknown = not self.seed_known and self.used_seed
            if is_unknown and not (was_drawn and opening and (recorded or self.steps)):
                raise Failure("drift", f"{NO_SEED} what was drawn with it")
            answer = record.answer()
            if answer is None:
                return differing
            if self.over:
                self._differ(differing, "the game went on", "the game is over")
                return differing
            step = await self.advance(task, answer)
            shown = [] if step.over else step.items()

    def _differ(self, differing: list[tuple[int, str, str]], recorded: str, shown: str) -> None:
        """Note a difference from the record, or fail if it is another game."""
        turn = len(self.steps)
        if turn == 0:
            raise Failure("drift", f"the game began with {recorded!r:.200} then, and begins with {shown!r:.200} now")
        if not self.seed_known:
            raise Failure("drift", f"turn {turn} led to {recorded!r:.200} then, and leads to {shown!r:.200} now")
        differing.append((turn, recorded, shown))


def starting_points(seed: int, instruction: str) -> Iterator[dict[str, Any]]:
    """Endless rows that differ only in the `seed` for `reset`. No seed comes twice."""
    generator, used = random.Random(seed), set[int]()
    while True:
        start = generator.getrandbits(31)
        if start not in used:
            used.add(start)
            prompt = [{"role": "system", "content": instruction}, {"role": "user", "content": "Begin."}]
            yield {"responses_create_params": {"input": prompt}, "seed": start}


def _last_message(task: Any) -> str:
    """The text of the task's last message, if a user wrote it."""
    last = task.input[-1:] if task is not None else []
    return "".join(texts_of(item) for item in last if item.get("role") == "user")


def observation_items(observation: str | None) -> list[Item]:
    """An observation as the user message that the model sees, or no item if it is empty."""
    return [{"type": "message", "role": "user", "content": observation}] if observation else []


class GameRecord:
    """Reads a trajectory turn by turn: all of it, or only `turns` answers. `output[:at]` is read."""

    def __init__(self, response: Response, sizes: Iterable[int] | None, turns: int | None = None) -> None:
        self.turns = turns
        self.at = 0
        self._response = response
        self._items = response.output
        self._sizes = deque(sizes) if sizes is not None else None
        self._answered = 0

    def shown(self, expects_message: bool) -> list[Item]:
        """Read the game's next items: outputs of tools, then at most one message.

        If no message is expected and the next answer is empty, the message came after that answer.
        """
        start, items = self.at, self._items
        while self.at < len(items) and _is_output(items[self.at]):
            self.at += 1
        next_is_empty = self._sizes is not None and len(self._sizes) > 0 and self._sizes[0] == 0
        if self.at < len(items) and is_input(items[self.at]) and (expects_message or not next_is_empty):
            self.at += 1
        return items[start : self.at]

    def answer(self) -> Response | None:
        """Read the next answer of the model, or None after the last."""
        start, items = self.at, self._items
        if self._answered == self.turns:
            return None
        self._answered += 1
        if self._sizes is not None:
            if not self._sizes:
                return None
            self.at = min(start + max(self._sizes.popleft(), 0), len(items))
        else:
            if start == len(items):
                return None
            while self.at < len(items) and not is_input(items[self.at]):
                self.at += 1
        answer = items[start : self.at]
        if self.at == len(items):
            return Response({**self._response.data, "output": answer})
        return Response.of(*answer, model=str(self._response.data.get("model") or ""))


def _is_output(item: Item) -> bool:
    return item.get("type") == "function_call_output"


def _text_of(items: list[Item]) -> str:
    return "\n".join(str(item.get("output")) if _is_output(item) else texts_of(item) for item in items)
