"""The tool calls of a recorded trajectory: which have an output, in which turn they were made, and which ran at once.

`model_calls` is the record's field of that name: one entry for each model call. `items` is how many items the call
wrote. `parallel` says whether the tool calls of that turn ran at once; only turns with several calls have it. A record
without `parallel` is older: its calls ran at once, unless its task says `parallel_tool_calls: false`. A response
without `model_calls` comes from elsewhere, usually from NeMo Gym, whose agents run calls one after another.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ludus.agents.simulated_user import UserCall
from ludus.response import Item
from ludus.store.model_calls import call_starts, sizes_of


class AnsweredCall(NamedTuple):
    """A call that was run, and its recorded output. `position` is the call's index in the trajectory, -1 for a call of
    the simulated user."""

    position: int
    call: Item | UserCall
    output: Any

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name if isinstance(self.call, UserCall) else str(self.call["name"])


def answered_calls(output: list[Item], by_user: Iterable[UserCall] = ()) -> Iterator[AnsweredCall]:
    """The calls that were run, the calls of a simulated user where they were made.

    Models reuse ids: an output belongs to the oldest unanswered call with its id.
    """
    waiting: defaultdict[str, deque[int]] = defaultdict(deque)
    user_calls = deque(by_user)
    for position, item in enumerate(output):
        while user_calls and user_calls[0].after <= position:
            yield AnsweredCall(-1, user_calls[0], user_calls.popleft().output)
        kind, name = item.get("type"), str(item.get("call_id"))
        if kind == "function_call":
            waiting[name].append(position)
        elif kind == "function_call_output" and waiting[name]:
            called = waiting[name].popleft()
            yield AnsweredCall(called, output[called], item.get("output"))
    yield from (AnsweredCall(-1, call, call.output) for call in user_calls)


def in_turns(calls: Iterable[AnsweredCall], turns: dict[int, int]) -> Iterator[list[AnsweredCall]]:
    """Calls that ran at once, together; every other call alone. `turns` is what `parallel_turns` returned."""
    group: list[AnsweredCall] = []
    for call in calls:
        turn = turns.get(call.position)
        if group and (turn is None or turn != turns.get(group[0].position)):
            yield group
            group = []
        group.append(call)
    if group:
        yield group


def parallel_turns(output: list[Item], model_calls: Any, assumed: bool) -> dict[int, int]:
    """The turn of every function call that ran at once with others of its turn, by its index in the trajectory.

    `assumed` is the value for a record without the field.
    """
    sizes = sizes_of(model_calls)
    if sizes is None or min(sizes) < 0:
        return {}
    turns: dict[int, int] = {}
    starts = [*call_starts(output, model_calls), len(output)]
    turn = 0
    for position, item in enumerate(output):
        while turn + 1 < len(sizes) and starts[turn + 1] <= position:
            turn += 1
        inside = starts[turn] <= position < starts[turn] + sizes[turn]
        if inside and item.get("type") == "function_call" and model_calls[turn].get("parallel", assumed):
            turns[position] = turn
    return turns


def call_start(output: list[Item], model_calls: list[dict[str, Any]], turn: int) -> int:
    """The index in a trajectory of the first item of the model call that follows the first `turn` calls."""
    return next(islice(call_starts(output, model_calls), turn, None))
