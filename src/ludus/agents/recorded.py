"""An agent that replays a stored rollout: it brings a session to the state after the rollout, or after part of it.

The five steps are those of every rollout; only the agent differs. It runs the recorded tool calls again and calls no
model. The outputs are compared with the recorded ones. A difference is drift: the environment has changed since the
rollout was collected, so the new reward may differ for that reason.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import orjson

from ludus.agent import Agent
from ludus.agents.conversation import NOT_CARRIED_OUT, Ending
from ludus.agents.recorded_calls import AnsweredCall, answered_calls, call_start, in_turns, parallel_turns
from ludus.agents.simulated_user import UserCall
from ludus.agents.user import UserRole
from ludus.episode import Episode, play
from ludus.errors import Failure
from ludus.game import NO_SEED, Game, GameRecord
from ludus.limits import Limits
from ludus.model import Model
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Item, PicturedText, Response, texts_of
from ludus.rollout import Job
from ludus.runtime.boundary import step, together
from ludus.runtime.deadline import Deadline
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus.store.model_calls import sizes_of
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
    harness = (response.data.get("metadata") or {}).get("harness")
    if harness and kind.has_session:
        cause = f"{harness!s:.80} worked in a sandbox that is gone: its commands cannot run again outside the program"
        raise Failure("no_replay", cause, stage="tool")
    if issubclass(kind, Game):
        return _GameAgent(response, sizes_of(model_calls), turns)
    if turns is not None and turns < len(model_calls):
        response = until(response, call_start(response.output, model_calls, turns))
    return RecordedAgent(response, model_calls, run_tools=kind.has_session)


async def judge_text(
    session: Resources, task: Task, response: Response, limits: Limits, deadline: Deadline | None = None
) -> Verdict:
    """The verdict on a response in an environment without session state: of the five steps, only `verify`."""
    judging = awaited(session.verify, task, response)
    return Verdict.of(await step("verify", limits.verify, judging, "", deadline), session.verify)


async def judge_again(
    job: Job, session: Resources, response: Response, limits: Limits, model_calls: Any = None
) -> tuple[Verdict, Drift | None]:
    """The verdict on a recorded response after its tool calls were run again, and the drift."""
    agent = recorded_agent(type(session), response, model_calls)
    rollout = await play(Episode(job, session, NO_MODEL, limits), agent)
    if rollout.verdict is None:
        raise rollout.error or Failure("crash", "no verdict", stage="verify")
    return rollout.verdict, agent.drift


async def catch_up(episode: Episode, response: Response, model_calls: list[dict[str, Any]]) -> None:
    """Bring the open session of an episode to its state after a record of all its turns. Drift is a failure here."""
    agent = recorded_agent(type(episode.resources), response, model_calls, len(model_calls))
    await agent.act(episode)
    if (drift := agent.drift) is not None:
        raise _drifted(drift)


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


class RecordedAgent(Agent):
    """Runs the tool calls of a response again, unless `run_tools` is false, and calls no model.

    The calls of a turn run the way they ran then: at once, or one after another.
    """

    def __init__(self, response: Response, model_calls: Any = None, *, run_tools: bool = True) -> None:
        self._response, self._model_calls, self._run_tools = response, model_calls, run_tools
        self._first: list[dict[str, Any]] = []
        self._compared = self._differing = 0

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
            calls = answered_calls(response.output, ending.user_calls if ending else ())
            assumed = episode.params.get("parallel_tool_calls") is not False
            turns = parallel_turns(response.output, self._model_calls, assumed)
            for group in in_turns((call for call in calls if call.output != NOT_CARRIED_OUT), turns):
                await self._run(episode, group)
                self._compared += len(group)
            episode.mask = ending.mask if ending else None
            self._check_seed(episode.resources)
        episode.conclude(response)
        return "replayed"

    def _check_seed(self, session: Resources) -> None:
        """Fail if the session was drawn with a seed that the record does not have, and may have started differently."""
        if session.seed_known or not session.used_seed:
            return
        if (drift := self.drift) is not None:
            raise _drifted(drift)
        if not self._compared:
            raise Failure("drift", f"{NO_SEED} what was drawn with it", stage="tool")

    async def _run(self, episode: Episode, calls: list[AnsweredCall]) -> None:
        """Run calls again, at once if there are several, and compare their outputs with the record."""
        works = [_run_again(episode, answered.call) for answered in calls]
        names = ", ".join(f"`{answered.name}`" for answered in calls)
        work = together(works) if len(works) > 1 else _alone(works[0])
        outputs = await episode.step("tool", episode.limits.tool, work, f"tool {names}")
        for answered, output in zip(calls, outputs, strict=True):
            if not _same(answered.output, output):
                self._add_drift(answered, output)

    def _add_drift(self, answered: AnsweredCall, output: str) -> None:
        self._differing += 1
        if len(self._first) < CALLS_KEPT:
            text = answered.output if isinstance(answered.output, str) else encode(answered.output).decode()
            call_id = "user" if isinstance(answered.call, UserCall) else answered.call["call_id"]
            names = {"call_id": call_id, "name": answered.name}
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
            raise _drifted(drift)
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


def _drifted(drift: Drift) -> Failure:
    first = drift["calls"][0]
    name = first.get("name") or f"turn {first.get('turn')}"
    cause = f"{name} returned {first['recorded']!r:.200} then, and returns {first['replayed']!r:.200} now"
    return Failure("drift", cause, stage="tool")


async def _run_again(episode: Episode, call: Item | UserCall) -> str:
    """Run a recorded call of the model, or of the simulated user."""
    if not isinstance(call, UserCall):
        return await episode.call_tool(call["name"], call["arguments"])
    role: UserRole = episode.resources.user(episode.task)  # type: ignore[attr-defined]
    tools = {tool.name: tool for tool in role.tools}
    return str(await tools[call.name].run(call.arguments) if call.name in tools else not_found())


async def _alone(work: Awaitable[str]) -> list[str]:
    return [await work]


def _same(recorded: Any, output: str) -> bool:
    """Whether two outputs are equal. Two JSON texts are compared by their values; pictures are not compared."""
    if isinstance(output, PicturedText):
        recorded = texts_of({"content": recorded})
    if recorded == output:
        return True
    try:
        before = orjson.loads(recorded) if isinstance(recorded, str) else recorded
        return bool(before == orjson.loads(output))
    except orjson.JSONDecodeError:
        return False
