"""An agent that replays a stored rollout: it brings a session to the state after the rollout, or after part of it.

The five steps are those of every rollout; only the agent differs. It runs the recorded tool calls again and calls no
model. What a tool returns now is compared with what the record says. A difference is drift: the environment has changed
since the rollout was collected, so the new reward may differ for that reason.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ludus.agent import Agent
from ludus.agents.conversation import NOT_CARRIED_OUT, Ending
from ludus.agents.simulated_user import UserCall
from ludus.agents.user import UserRole
from ludus.episode import Episode, Limits, play
from ludus.errors import Failure
from ludus.game import Game, GameRecord
from ludus.model import Model
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Item, Response, is_message
from ludus.rollout import Job
from ludus.runtime.boundary import Deadline, step
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus.task import Task
from ludus.tools import not_found

#: How much of the drift a row stores: this many calls, and this many characters of their outputs.
CALLS_KEPT = 5
TEXT_KEPT = 500

#: How many recorded calls now return something else (`count`), and the first of them (`calls`).
Drift = dict[str, Any]

#: The model of an episode that calls no model.
NO_MODEL = Model()


def recorded_agent(
    kind: type[Resources], response: Response, model_calls: Any = None, turns: int | None = None
) -> RecordedAgent:
    """The agent that replays a recorded response, or its part up to the model call that follows the first `turns`.

    `model_calls` is the record's field of that name: it says how many items each call wrote, so turns are exact.
    """
    if issubclass(kind, Game):
        return _GameAgent(response, sizes_of(model_calls), turns)
    if turns is not None:
        response = until(response, call_start(response.output, model_calls, turns))
    return RecordedAgent(response, run_tools=kind.has_session)


async def judge_text(
    session: Resources, task: Task, response: Response, limits: Limits, deadline: Deadline | None = None
) -> Verdict:
    """The verdict on a response in an environment without session state: of the five steps, only `verify`."""
    return Verdict.of(await step("verify", limits.verify, awaited(session.verify, task, response), "", deadline))


async def judge_again(
    job: Job, session: Resources, response: Response, limits: Limits, model_calls: Any = None
) -> tuple[Verdict, Drift | None]:
    """The verdict on a recorded response after its tool calls were run again, and the drift."""
    agent = recorded_agent(type(session), response, model_calls)
    rollout = await play(Episode(job, session, NO_MODEL, limits), agent)
    if rollout.verdict is None:
        raise rollout.error or Failure("crash", "no verdict", stage="verify")
    return rollout.verdict, agent.drift


async def reach(episode: Episode, response: Response, model_calls: Any, turn: int) -> tuple[Resources, Response]:
    """Bring an episode's session to its state before the model call that follows the first `turn` calls of a record.

    Returns the session, which stays open, and the trajectory up to that call. Drift is a failure here.
    """
    recorded = recorded_agent(type(episode.resources), response, model_calls, turn)
    agent = _SessionTaker(recorded)
    rollout = await play(episode, agent, verify=False)
    if rollout.error is not None:
        raise rollout.error
    assert agent.session is not None
    return agent.session, until(response, recorded.end)


def until(response: Response, end: int) -> Response:
    """The first `end` items of a trajectory, as a response."""
    output, ending = response.output[:end], Ending.of(response)
    data = {**response.data, "output": output, "status": "completed", "incomplete_details": None, "usage": None}
    if ending is not None:
        turns = sum(item.get("role") == "user" for item in output)
        calls = [call for call in ending.user_calls if call.after < end]
        so_far = Ending(reason="", user_turns=turns, user_calls=calls)
        data["metadata"] = {**response.data["metadata"], "conversation": encode(so_far.model_dump()).decode()}
    return Response(data)


def call_start(output: list[Item], model_calls: list[dict[str, Any]], turn: int) -> int:
    """The index in a trajectory of the first item of the model call that follows the first `turn` calls."""
    at = 0
    for call in model_calls[:turn]:
        at = _after_replies(output, at, call) + call["items"]
    return _after_replies(output, at, model_calls[turn])


def answered_calls(output: list[Item], by_user: Iterable[UserCall] = ()) -> Iterator[tuple[Item | UserCall, Any]]:
    """The calls that were run, each with its output, the calls of a simulated user where they were made.

    Models reuse ids: an output belongs to the oldest call with its id that has none yet.
    """
    waiting: defaultdict[str, deque[Item]] = defaultdict(deque)
    user_calls = deque(by_user)
    for position, item in enumerate(output):
        while user_calls and user_calls[0].after <= position:
            yield user_calls[0], user_calls.popleft().output
        kind, name = item.get("type"), str(item.get("call_id"))
        if kind == "function_call":
            waiting[name].append(item)
        elif kind == "function_call_output" and waiting[name]:
            yield waiting[name].popleft(), item.get("output")
    yield from ((call, call.output) for call in user_calls)


class RecordedAgent(Agent):
    """Runs the tool calls of a response again, unless `run_tools` is false, and calls no model."""

    def __init__(self, response: Response, *, run_tools: bool = True) -> None:
        self._response, self._run_tools = response, run_tools
        self._first: list[dict[str, Any]] = []
        self._differing = 0

    @property
    def end(self) -> int:
        """How many items of the trajectory were replayed."""
        return len(self._response.output)

    @property
    def drift(self) -> Drift | None:
        """The outputs that differ from the record, or None if all are the same."""
        return {"count": self._differing, "calls": self._first} if self._differing else None

    async def act(self, episode: Episode) -> str:
        """Run the recorded calls again, then make the recorded trajectory the response."""
        response = self._response
        if self._run_tools:
            ending = Ending.of(response)
            for call, recorded in answered_calls(response.output, ending.user_calls if ending else ()):
                if recorded != NOT_CARRIED_OUT:
                    await self._call(episode, call, recorded)
            episode.mask = ending.mask if ending else None
        episode.conclude(response)
        return "replayed"

    async def _call(self, episode: Episode, call: Item | UserCall, recorded: Any) -> None:
        if isinstance(call, UserCall):
            name, run = call.name, _run_for_user(episode, call)
        else:
            name, run = call["name"], episode.call_tool(call["name"], call["arguments"])
        output = await episode.step("tool", episode.limits.tool, run, f"tool `{name}`")
        if not _same(recorded, output):
            self._note(call, recorded, output)

    def _note(self, call: Item | UserCall, recorded: Any, output: str) -> None:
        self._differing += 1
        if len(self._first) < CALLS_KEPT:
            text = recorded if isinstance(recorded, str) else encode(recorded).decode()
            call_id, name = ("user", call.name) if isinstance(call, UserCall) else (call["call_id"], call["name"])
            names = {"call_id": call_id, "name": name}
            self._first.append({**names, "recorded": text[:TEXT_KEPT], "replayed": output[:TEXT_KEPT]})


class _SessionTaker(Agent):
    """Replays a record, then takes the session out of the episode, so that the episode does not close it."""

    def __init__(self, recorded: RecordedAgent) -> None:
        super().__init__()
        self._recorded = recorded
        self.session: Resources | None = None

    async def act(self, episode: Episode) -> str:
        await self._recorded.act(episode)
        if (drift := self._recorded.drift) is not None:
            first = drift["calls"][0]
            name = first.get("name") or f"turn {first.get('turn')}"
            cause = f"{name} led to {first['recorded']!r:.200} then, and leads to {first['replayed']!r:.200} now"
            raise Failure("drift", cause, stage="tool")
        self.session, episode.resources = episode.resources, Resources()
        return "reached"


class _GameAgent(RecordedAgent):
    """Plays the recorded answers of a game again, or the first `turns` of them."""

    def __init__(self, response: Response, sizes: list[int] | None, turns: int | None = None) -> None:
        super().__init__(response)
        self._most = len(response.output if sizes is None else sizes)
        self._record = GameRecord(response, sizes, turns)

    @property
    def end(self) -> int:
        """How many items of the trajectory were replayed."""
        return self._record.at

    async def act(self, episode: Episode) -> str:
        """Play the recorded turns, then make the recorded trajectory the response."""
        game = episode.resources
        assert isinstance(game, Game)
        work = game.follow_record(episode.task, self._record)
        drift = await episode.step("tool", episode.limits.tool * max(1, self._most), work, "the recorded game")
        self._differing = len(drift)
        for turn, before, now in drift[:CALLS_KEPT]:
            self._first.append({"turn": turn, "recorded": before[:TEXT_KEPT], "replayed": now[:TEXT_KEPT]})
        episode.conclude(self._response)
        return "replayed"


def _after_replies(output: list[Item], at: int, call: dict[str, Any]) -> int:
    """The index of the first item of the next model call at or after `at`, past the items that the model was shown.

    An empty answer has no items: it is assumed to come after the outputs of tools and one message.
    """
    if isinstance(call.get("at"), int):
        return int(call["at"])
    messages = 0
    while at < len(output) and _is_reply(output[at]) and (call["items"] or not messages):
        messages += output[at].get("type", "message") == "message"
        at += 1
    return at


def _is_reply(item: Item) -> bool:
    """Whether the model was shown an item, and did not write it."""
    kind = str(item.get("type", "message"))
    return kind.endswith("_output") or (kind == "message" and not is_message(item))


def sizes_of(model_calls: Any) -> list[int] | None:
    """How many items each model call wrote, or None if that is unknown for any of them."""
    calls = model_calls if isinstance(model_calls, list) else []
    sizes = [call["items"] for call in calls if isinstance(call, dict) and isinstance(call.get("items"), int)]
    return sizes if sizes and len(sizes) == len(calls) else None


async def _run_for_user(episode: Episode, call: UserCall) -> str:
    """Run a tool call of the simulated user again."""
    role: UserRole = episode.resources.user(episode.task)  # type: ignore[attr-defined]
    tools = {tool.name: tool for tool in role.tools}
    return str(await tools[call.name].run(call.arguments) if call.name in tools else not_found())


def _same(recorded: Any, output: str) -> bool:
    """Whether two outputs are equal. Two JSON texts are compared by their values."""
    if recorded == output:
        return True
    try:
        before = orjson.loads(recorded) if isinstance(recorded, str) else recorded
        return bool(before == orjson.loads(output))
    except orjson.JSONDecodeError:
        return False
