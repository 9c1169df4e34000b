"""Games: environments that are played turn by turn.

The game may speak first (`reset`); then the model answers and the game makes something of the answer (`step`), until
one of the two says that it is over. A step sees the latest answer only: what a game has to remember it keeps in `self`,
which is the session. The rewards of the steps are the verdict, so a game writes no verifier of its own.

A game can be played again from a recorded trajectory, because all that a model contributes is its answers. That is how
a stored rollout is scored once more, and how a response is judged that was never played here.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Item, Response, function_call_output, is_message, texts_of
from ludus.runtime.threads import awaited
from ludus.tools import not_found


@dataclass(slots=True)
class Step:
    """What one answer led to.

    `observation` is shown to the model as a user's message, after `tool_outputs`, which answer function calls by their
    `call_id`. `terminated` says that the game came to its end, `truncated` that it was cut short. `info` is recorded
    and not shown.
    """

    observation: str | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: list[tuple[str, str]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing comes after this step."""
        return self.terminated or self.truncated

    def items(self) -> list[Item]:
        """What the model is shown next."""
        outputs = [function_call_output(call_id, output) for call_id, output in self.tool_outputs]
        return [*outputs, *spoken(self.observation)]


class Game(Resources):
    """Base of everything that is played turn by turn. Override `reset` and `step`; both may be plain functions.

    class GuessTheNumber(Game):
        async def reset(self, task: Task) -> str:
            self.number = random.Random(self.seed).randint(1, 10)
            return "I think of a number from 1 to 10."

        async def step(self, task: Task, response: Response) -> Step:
            if response.output_text.strip() == str(self.number):
                return Step(reward=1.0, terminated=True)
            return Step("No. Try again.")
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.has_session = not cls.judged_by_response

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.steps: list[Step] = []  #: everything that happened so far
        self._begun = False

    async def reset(self, task: Any) -> str | None:
        """Prepare the first turn, and say what the model sees before it."""
        return None

    async def step(self, task: Any, response: Response) -> Step:
        """Take the model's latest answer, and say what it led to."""
        raise TypeError(f"{type(self).__name__} does not define step()")

    async def begin(self, task: Any) -> str | None:
        """Start the game from its beginning."""
        self.steps, self._begun = [], True
        observation: str | None = await awaited(self.reset, task)
        return observation

    async def advance(self, task: Any, response: Response) -> Step:
        """Take one step and remember it. A function call that the game leaves unanswered is one it does not know."""
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
        """Whether the first turn was prepared."""
        return self._begun

    @property
    def over(self) -> bool:
        """Whether the last step ended the game."""
        return bool(self.steps) and self.steps[-1].over

    async def verify(self, task: Any, response: Response) -> Verdict:
        """The sum of all steps. A game that nobody began is played from the response; one without a step has no reward.

        A game that was left before its end counts as truncated, with what it earned so far.
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
        """Play a trajectory again. Returns the turns after which the game said something else than the record:
        the number of the turn, what was recorded, and what the game says now.

        `sizes` tells how many items each answer holds. Without it an answer ends where the game speaks, so answers
        that the game passed over in silence are taken as one.
        """
        return await self.follow_record(task, GameRecord(response, sizes))

    async def follow_record(self, task: Any, record: GameRecord) -> list[tuple[int, str, str]]:
        """The same for a trajectory that is read as far as `record` goes."""
        differing = []
        shown = spoken(await self.begin(task))
        while True:
            recorded = record.shown(speaks=bool(shown) and not _is_output(shown[-1]))
            if (recorded or record.turns is not None) and _said(recorded) != _said(shown):
                differing.append((len(self.steps), _said(recorded), _said(shown)))
            answer = record.answer()
            if answer is None:
                return differing
            if self.over:
                return [*differing, (len(self.steps), "the game went on", "the game is over")]
            step = await self.advance(task, answer)
            shown = [] if step.over else step.items()


def starting_points(seed: int, instruction: str) -> Iterator[dict[str, Any]]:
    """Rows without end that differ in the seed that the game is reset with, no two of them alike."""
    chance, drawn = random.Random(seed), set[int]()
    while True:
        start = chance.getrandbits(31)
        if start not in drawn:
            drawn.add(start)
            asked = [{"role": "system", "content": instruction}, {"role": "user", "content": "Begin."}]
            yield {"responses_create_params": {"input": asked}, "seed": start}


def spoken(observation: str | None) -> list[Item]:
    """An observation as the message that the model sees; nothing where there is nothing to see."""
    return [{"type": "message", "role": "user", "content": observation}] if observation else []


class GameRecord:
    """A trajectory read in turns: all of it, or up to what was shown after `turns` of its answers. The part that was
    read is `output[:at]`."""

    def __init__(self, response: Response, sizes: Iterable[int] | None, turns: int | None = None) -> None:
        self.turns = turns
        self.at = 0
        self._response = response
        self._items = response.output
        self._sizes = deque(sizes) if sizes is not None else None
        self._answered = 0

    def shown(self, speaks: bool) -> list[Item]:
        """What the game showed next: outputs of tools, then at most one message.

        If the game does not speak now and the next answer is an empty one, the message belongs behind that.
        """
        start, items = self.at, self._items
        while self.at < len(items) and _is_output(items[self.at]):
            self.at += 1
        next_is_empty = self._sizes is not None and len(self._sizes) > 0 and self._sizes[0] == 0
        if self.at < len(items) and _is_shown(items[self.at]) and (speaks or not next_is_empty):
            self.at += 1
        return items[start : self.at]

    def answer(self) -> Response | None:
        """What the model answered next; None when it answered no more."""
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
            while self.at < len(items) and not _is_shown(items[self.at]):
                self.at += 1
        answer = items[start : self.at]
        if self.at == len(items):
            return Response({**self._response.data, "output": answer})
        return Response.of(*answer, model=str(self._response.data.get("model") or ""))


def _is_output(item: Item) -> bool:
    return item.get("type") == "function_call_output"


def _is_shown(item: Item) -> bool:
    """Whether the game showed an item to the model, and not the other way round."""
    return _is_output(item) or (item.get("type", "message") == "message" and not is_message(item))


def _said(items: list[Item]) -> str:
    return "\n".join(str(item.get("output")) if _is_output(item) else texts_of(item) for item in items)
