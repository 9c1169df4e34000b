"""A session brought back to where a stored rollout left it, or once stood, by running the recorded calls again.

The five steps are those of every rollout; only the agent differs: it does what the record says and asks no model. What
a tool returns now is compared with what the record says it returned. A difference is environment drift: the environment
is not what it was when the rollout was collected, and its new reward has to be read with that in mind.
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
from ludus.environment import Environment
from ludus.episode import Episode, play
from ludus.errors import Failure
from ludus.game import Game, GameRecord
from ludus.model import Model
from ludus.resources import Resources
from ludus.response import Item, Response, is_message
from ludus.rollout import Job, Rollout
from ludus.runtime.encoding import encode
from ludus.tools import not_found

#: How much of the drift a row keeps: the first calls, and the beginning of what they returned.
CALLS_KEPT = 5
TEXT_KEPT = 500

_NOBODY = Model()


def has_session(kind: type[Resources]) -> bool:
    """Whether a rollout of these resources is more than its text: something to open, to call, to play or to close.

    Resources whose tools must not run again (a model plays them) say so: `judged_by_response = True`.
    """
    if getattr(kind, "judged_by_response", False):
        return False
    return (
        bool(kind.toolbox)
        or issubclass(kind, Game)
        or any(getattr(kind, name) is not getattr(Resources, name) for name in ("open", "close", "call", "tools"))
    )


async def replay(
    job: Job, response: Response, environment: Environment, resources: Resources, model_calls: Any = None
) -> tuple[Rollout, dict[str, Any] | None]:
    """Play a recorded response on a fresh session: the rollout with its verdict or failure, and how it drifted.

    `model_calls` is part of a record too: where it tells how many items each call wrote, the turns of a game are exact.
    """
    agent = _Answering(response, sizes_of(model_calls)) if isinstance(resources, Game) else _Recorded(response)
    rollout = await play(Episode(job, resources, _NOBODY, environment.limits), agent)
    if not agent.differing:
        return rollout, None
    return rollout, {"count": agent.differing, "calls": agent.first}


async def reach(
    job: Job, response: Response, environment: Environment, resources: Resources, model_calls: Any, turn: int
) -> tuple[Resources, Response]:
    """Bring a fresh session to where a record stood before its next model call after `turn` others, and leave it open.

    Also returns the trajectory up to there. Drift is a failure here.
    """
    if isinstance(resources, Game):
        recorded: _Recorded = _Answering(response, sizes_of(model_calls), turn)
    else:
        recorded = _Recorded(until(response, begins(response.output, model_calls, turn)))
    agent = _Reaching(recorded, run=has_session(type(resources)))
    rollout = await play(Episode(job, resources, _NOBODY, environment.limits), agent, verify=False)
    if rollout.error is not None:
        raise rollout.error
    assert agent.session is not None
    return agent.session, until(response, recorded.end)


def until(response: Response, end: int) -> Response:
    """The beginning of a trajectory, as a response of its own."""
    output, ending = response.output[:end], Ending.of(response)
    data = {**response.data, "output": output, "status": "completed", "incomplete_details": None, "usage": None}
    if ending is not None:
        turns = sum(item.get("role") == "user" for item in output)
        calls = [call for call in ending.user_calls if call.after < end]
        so_far = Ending(reason="", user_turns=turns, user_calls=calls)
        data["metadata"] = {**response.data["metadata"], "conversation": encode(so_far.model_dump()).decode()}
    return Response(data)


def begins(output: list[Item], model_calls: list[dict[str, Any]], turn: int) -> int:
    """Where in a trajectory begins what the model wrote after `turn` other calls."""
    at = 0
    for call in model_calls[:turn]:
        at = _after_replies(output, at, call) + call["items"]
    return _after_replies(output, at, model_calls[turn])


def answered_calls(output: list[Item], by_user: Iterable[UserCall] = ()) -> Iterator[tuple[Item | UserCall, Any]]:
    """The calls that were run, each with what it returned. Models use the same id again, so the oldest is meant.

    Those of a simulated user come where they were made.
    """
    waiting: defaultdict[str, deque[Item]] = defaultdict(deque)
    private = deque(by_user)
    for position, item in enumerate(output):
        while private and private[0].after <= position:
            yield private[0], private.popleft().output
        kind, name = item.get("type"), str(item.get("call_id"))
        if kind == "function_call":
            waiting[name].append(item)
        elif kind == "function_call_output" and waiting[name]:
            yield waiting[name].popleft(), item.get("output")
    yield from ((call, call.output) for call in private)


class _Recorded(Agent):
    """Does again what a response says was done."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self._response = response
        self.end = len(response.output)  #: where in the trajectory that leads
        self.differing = 0
        self.first: list[dict[str, Any]] = []

    async def act(self, episode: Episode) -> str:
        response = self._response
        ending = Ending.of(response)
        for call, recorded in answered_calls(response.output, ending.user_calls if ending else ()):
            if recorded == NOT_CARRIED_OUT:
                continue
            run = (
                _run_for_user(episode, call)
                if isinstance(call, UserCall)
                else episode.call_tool(call["name"], call["arguments"])
            )
            output = await episode.within("tool", episode.limits.tool, run)
            if not _same(recorded, output):
                self._note(call, recorded, output)
        episode.items.extend(response.output)
        episode.usage = response.usage
        episode._last = response
        episode.mask = ending.mask if ending else None
        return "replayed"

    def _note(self, call: Item | UserCall, recorded: Any, output: str) -> None:
        self.differing += 1
        if len(self.first) < CALLS_KEPT:
            said = recorded if isinstance(recorded, str) else encode(recorded).decode()
            call_id, name = ("user", call.name) if isinstance(call, UserCall) else (call["call_id"], call["name"])
            names = {"call_id": call_id, "name": name}
            self.first.append({**names, "recorded": said[:TEXT_KEPT], "replayed": output[:TEXT_KEPT]})


class _Reaching(Agent):
    """Does again what was done, and takes the session out of the episode, which closes what it is left with."""

    def __init__(self, recorded: _Recorded, *, run: bool) -> None:
        super().__init__()
        self._recorded, self._run = recorded, run
        self.session: Resources | None = None

    async def act(self, episode: Episode) -> str:
        recorded = self._recorded
        if self._run:
            await recorded.act(episode)
        if recorded.differing:
            first = recorded.first[0]
            what = first.get("name") or f"turn {first.get('turn')}"
            cause = f"{what} led to {first['recorded']!r:.200} then, and leads to {first['replayed']!r:.200} now"
            raise Failure("drift", cause, stage="tool")
        self.session, episode.resources = episode.resources, Resources()
        return "reached"


class _Answering(_Recorded):
    """Gives a game the recorded answers again, or the first `turns` of them."""

    def __init__(self, response: Response, sizes: list[int] | None, turns: int | None = None) -> None:
        super().__init__(response)
        self._most = len(response.output if sizes is None else sizes)
        self._record = GameRecord(response, sizes, turns)

    async def act(self, episode: Episode) -> str:
        game, response = episode.resources, self._response
        assert isinstance(game, Game)
        work = game.follow_record(episode.task, self._record)
        drift = await episode.within("tool", episode.limits.tool * max(1, self._most), work)
        self.end, self.differing = self._record.at, len(drift)
        for turn, said, says in drift[:CALLS_KEPT]:
            self.first.append({"turn": turn, "recorded": said[:TEXT_KEPT], "replayed": says[:TEXT_KEPT]})
        episode.adopt(response, [], response.usage)
        return "replayed"


def _after_replies(output: list[Item], at: int, call: dict[str, Any]) -> int:
    """Where a call begins that comes next after `at`, behind what the model was shown before it.

    Of an empty answer nothing is to be seen: it is taken to come behind the outputs of tools and one message.
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
    """How many items each model call wrote, if all of them tell."""
    calls = model_calls if isinstance(model_calls, list) else []
    sizes = [call["items"] for call in calls if isinstance(call, dict) and isinstance(call.get("items"), int)]
    return sizes if sizes and len(sizes) == len(calls) else None


async def _run_for_user(episode: Episode, call: UserCall) -> str:
    """Run a call of the simulated user's own tools again."""
    role: UserRole = episode.resources.user(episode.task)  # type: ignore[attr-defined]
    tools = {tool.name: tool for tool in role.tools}
    return await tools[call.name].run(call.arguments) if call.name in tools else not_found()


def _same(recorded: Any, output: str) -> bool:
    """Whether two outputs say the same; two texts that hold JSON are compared by what they hold."""
    if recorded == output:
        return True
    try:
        before = orjson.loads(recorded) if isinstance(recorded, str) else recorded
        return bool(before == orjson.loads(output))
    except orjson.JSONDecodeError:
        return False
