"""A session brought back to where a stored rollout left it, by running the recorded tool calls again.

The five steps are those of every rollout; only the agent differs: it does what the record says and asks no model. What
a tool returns now is compared with what the record says it returned. A difference is environment drift: the environment
is not what it was when the rollout was collected, and its new reward has to be read with that in mind.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import orjson

from ludus.agent import Agent
from ludus.encoding import encode
from ludus.environment import Environment
from ludus.episode import Episode, play
from ludus.model import Model
from ludus.resources import Resources
from ludus.response import Item, Response
from ludus.rollout import Job, Rollout

#: How much of the drift a row keeps: the first calls, and the beginning of what they returned.
CALLS_KEPT = 5
TEXT_KEPT = 500

_NOBODY = Model()


def has_session(kind: type[Resources]) -> bool:
    """Whether a rollout of these resources is more than its text: there is something to open, to call or to close."""
    return bool(kind.toolbox) or any(
        getattr(kind, name) is not getattr(Resources, name) for name in ("open", "close", "call", "tools")
    )


async def replay(
    job: Job, response: Response, environment: Environment, resources: Resources
) -> tuple[Rollout, dict[str, Any] | None]:
    """Play a recorded response on a fresh session: the rollout with its verdict or failure, and how it drifted."""
    agent = _Recorded(response)
    rollout = await play(Episode(job, resources, _NOBODY, environment.limits), agent)
    if not agent.differing:
        return rollout, None
    return rollout, {"count": agent.differing, "calls": agent.first}


def answered_calls(output: list[Item]) -> Iterator[tuple[Item, Any]]:
    """The calls that were run, each with what it returned. Models use the same id again, so the oldest is meant."""
    waiting: defaultdict[str, deque[Item]] = defaultdict(deque)
    for item in output:
        kind, name = item.get("type"), str(item.get("call_id"))
        if kind == "function_call":
            waiting[name].append(item)
        elif kind == "function_call_output" and waiting[name]:
            yield waiting[name].popleft(), item.get("output")


class _Recorded(Agent):
    """Does again what a response says was done."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self._response = response
        self.differing = 0
        self.first: list[dict[str, Any]] = []

    async def act(self, episode: Episode) -> str:
        response = self._response
        for call, recorded in answered_calls(response.output):
            output = await episode.within("tool", episode.limits.tool, episode._run_tool(call))
            if not _same(recorded, output):
                self._note(call, recorded, output)
        episode.items.extend(response.output)
        episode.usage = response.usage
        episode._last = response
        return "replayed"

    def _note(self, call: Item, recorded: Any, output: str) -> None:
        self.differing += 1
        if len(self.first) < CALLS_KEPT:
            said = recorded if isinstance(recorded, str) else encode(recorded).decode()
            names = {"call_id": call["call_id"], "name": call["name"]}
            self.first.append({**names, "recorded": said[:TEXT_KEPT], "replayed": output[:TEXT_KEPT]})


def _same(recorded: Any, output: str) -> bool:
    """Whether two outputs say the same; two texts that hold JSON are compared by what they hold."""
    if recorded == output:
        return True
    try:
        before = orjson.loads(recorded) if isinstance(recorded, str) else recorded
        return bool(before == orjson.loads(output))
    except orjson.JSONDecodeError:
        return False
