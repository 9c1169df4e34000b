"""An agent that plays a record: it brings a session to where a stored rollout left it, or once stood.

The five steps are those of every rollout; only the agent differs. It runs the recorded calls again and asks no model.
What a tool returns now is compared with what the record says it returned. A difference is drift: the environment is
not what it was when the rollout was collected, and a new reward has to be read with that in mind.
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

#: How much of the drift a row keeps: the first calls, and the beginning of what they returned.
CALLS_KEPT = 5
TEXT_KEPT = 500

#: How many calls of a record returned something else than recorded (`count`), and the first of them (`calls`).
Drift = dict[str, Any]

#: The model of an episode in which no model is asked.
NO_MODEL = Model()


def recorded_agent(
    kind: type[Resources], response: Response, model_calls: Any = None, turns: int | None = None
) -> RecordedAgent:
    """The agent that plays a recorded response again, or the part of it before the model call after `turns` others.

    `model_calls` is part of a record too: it tells how many items each call wrote, which makes the turns exact.
    """
    if issubclass(kind, Game):
        return _GameAgent(response, sizes_of(model_calls), turns)
    if turns is not None:
        response = until(response, begins(response.output, model_calls, turns))
    return RecordedAgent(response, runs=kind.has_session)


async def judge_text(
    session: Resources, task: Task, response: Response, limits: Limits, deadline: Deadline | None = None
) -> Verdict:
    """The verdict on a response where a rollout is no more than its text: of the five steps only this one is left."""
    deadline = deadline or limits.deadline()
    deadline.start()
    try:
        return Verdict.of(await step("verify", limits.verify, awaited(session.verify, task, response), "", deadline))
    finally:
        deadline.stop()


async def judge_again(
    job: Job, session: Resources, response: Response, limits: Limits, model_calls: Any = None
) -> tuple[Verdict, Drift | None]:
    """The verdict on a recorded response after its session was played again, and how the session drifted."""
    agent = recorded_agent(type(session), response, model_calls)
    rollout = await play(Episode(job, session, NO_MODEL, limits), agent)
    if rollout.verdict is None:
        raise rollout.error or Failure("crash", "no verdict", stage="verify")
    return rollout.verdict, agent.drift


async def reach(episode: Episode, response: Response, model_calls: Any, turn: int) -> tuple[Resources, Response]:
    """Bring an episode's session to where a record stood before its next model call after `turn` others.

    Returns the session, which stays open, and the trajectory up to there. Drift is a failure here.
    """
    recorded = recorded_agent(type(episode.resources), response, model_calls, turn)
    agent = _Reaching(recorded)
    rollout = await play(episode, agent, verify=False)
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


class RecordedAgent(Agent):
    """Does again what a response says was done, and asks no model. Without `runs` no tool is called again."""

    def __init__(self, response: Response, *, runs: bool = True) -> None:
        self._response, self._runs = response, runs
        self._first: list[dict[str, Any]] = []
        self._differing = 0

    @property
    def end(self) -> int:
        """Where in the trajectory the record was played to."""
        return len(self._response.output)

    @property
    def drift(self) -> Drift | None:
        """How the session answered differently from the record."""
        return {"count": self._differing, "calls": self._first} if self._differing else None

    async def act(self, episode: Episode) -> str:
        """Run the recorded calls again, then take over the recorded trajectory."""
        response = self._response
        if self._runs:
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
            said = recorded if isinstance(recorded, str) else encode(recorded).decode()
            call_id, name = ("user", call.name) if isinstance(call, UserCall) else (call["call_id"], call["name"])
            names = {"call_id": call_id, "name": name}
            self._first.append({**names, "recorded": said[:TEXT_KEPT], "replayed": output[:TEXT_KEPT]})


class _Reaching(Agent):
    """Plays a record, then takes the session out of the episode, which closes only what it still has."""

    def __init__(self, recorded: RecordedAgent) -> None:
        super().__init__()
        self._recorded = recorded
        self.session: Resources | None = None

    async def act(self, episode: Episode) -> str:
        await self._recorded.act(episode)
        if (drift := self._recorded.drift) is not None:
            first = drift["calls"][0]
            what = first.get("name") or f"turn {first.get('turn')}"
            cause = f"{what} led to {first['recorded']!r:.200} then, and leads to {first['replayed']!r:.200} now"
            raise Failure("drift", cause, stage="tool")
        self.session, episode.resources = episode.resources, Resources()
        return "reached"


class _GameAgent(RecordedAgent):
    """Gives a game the recorded answers again, or the first `turns` of them."""

    def __init__(self, response: Response, sizes: list[int] | None, turns: int | None = None) -> None:
        super().__init__(response)
        self._most = len(response.output if sizes is None else sizes)
        self._record = GameRecord(response, sizes, turns)

    @property
    def end(self) -> int:
        """Where in the trajectory the game was played to."""
        return self._record.at

    async def act(self, episode: Episode) -> str:
        """Play the recorded turns, then take over the recorded trajectory."""
        game = episode.resources
        assert isinstance(game, Game)
        work = game.follow_record(episode.task, self._record)
        drift = await episode.step("tool", episode.limits.tool * max(1, self._most), work, "the recorded game")
        self._differing = len(drift)
        for turn, said, says in drift[:CALLS_KEPT]:
            self._first.append({"turn": turn, "recorded": said[:TEXT_KEPT], "replayed": says[:TEXT_KEPT]})
        episode.conclude(self._response)
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
    return str(await tools[call.name].run(call.arguments) if call.name in tools else not_found())


def _same(recorded: Any, output: str) -> bool:
    """Whether two outputs say the same; two texts that hold JSON are compared by what they hold."""
    if recorded == output:
        return True
    try:
        before = orjson.loads(recorded) if isinstance(recorded, str) else recorded
        return bool(before == orjson.loads(output))
    except orjson.JSONDecodeError:
        return False
