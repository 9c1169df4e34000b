"""The servers that a hosted agent calls, on loopback: the model of the rollout, and its resources.

A request names its rollout in its path (`/ng-rollout/ID/...`) or in a header. The id of a rollout is a secret of its
agent, so the front needs no token. A request that names none must come from a process of the agent. Model calls become
the trajectory of the rollout, with their tokens. The resources answer in NeMo Gym's routes: resources of ours through
the episode, those of NeMo Gym's code by passing requests on.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

from ludus.agents.command_proxy import Proxy
from ludus.agents.program_calls import ProgramCalls
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.http.app import Handler
from ludus.http.connection import HttpReply
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.model_routes import ModelRoutes
from ludus.outcome import Verdict
from ludus.record import verdict_row
from ludus.remote.http import ROLLOUT
from ludus.remote.resources import RemoteResources
from ludus.remote.verdicts import verdict_in
from ludus.response import Response
from ludus.runtime.boundary import step
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus_nemo_gym.hosted.made_up import MadeUpCalls
from ludus_nemo_gym.hosted.peers import is_ours
from ludus_nemo_gym.hosted.resources import HostedResources
from ludus_nemo_gym.hosted.served import method_of, passed_back, passed_on, read_body, with_query

_ROLLOUT = ROLLOUT.encode()


class PlayedRollout(ProgramCalls):
    """One rollout of a hosted agent: its model calls, its requests to the resources, and what failed."""

    sampling_is_operators = False  # an agent's configuration may set it, and the row
    refuses_long_prompts = False

    def __init__(self, episode: Episode, url: str, max_calls: int, **settings: Any) -> None:
        super().__init__(episode, url, max_calls, **settings)
        self.key = secrets.token_hex(16)
        self.episode = episode
        self.mask: str | None = None  #: why a verdict that the agent got is masked
        self._unanswered: dict[tuple[str, bytes], Failure] = {}  # by path and body
        self.unnamed: Failure | None = None  #: a request that may have been of this rollout, and was refused
        self._made_up = MadeUpCalls()

    def failed(self) -> Failure | None:
        """What failed and was not made good: the agent could do nothing about it, whatever it replied."""
        return next(iter(self._unanswered.values()), self.failure or self.unnamed)

    async def answer(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        """The model's answer."""
        self._made_up.refuse(incoming)
        answer = await super().answer(incoming, body)
        self._made_up.note(body.get("tools"), answer)
        return answer

    async def resources(self, incoming: Incoming) -> Reply:
        """The reply of the resources to a request of the agent."""
        self._made_up.refuse(incoming)
        key = incoming.path, incoming.body
        try:
            resources = self.episode.resources
            if isinstance(resources, RemoteResources) and (resources.seeded or isinstance(resources, HostedResources)):
                reply = await self._pass_on(incoming, resources)
            else:
                reply = await self._ask_ours(incoming)
        except Failure as failure:
            if incoming.path != "/close_session":  # the verdict does not depend on it
                self._unanswered[key] = failure
            raise
        self._unanswered.pop(key, None)  # the agent repeated its request, and now it has its reply
        if incoming.path == "/verify":
            self._read_verdict(incoming, reply)
        elif incoming.path in ("/seed_session", "/reset", "/step") and reply.status >= 500:
            start = HttpReply(reply.status, reply.body, []).start()
            self._unanswered[key] = Failure(f"http_{reply.status}", f"{key[0]} answered {reply.status}: {start}")
        return reply

    def _read_verdict(self, incoming: Incoming, reply: Reply) -> None:
        """Note a verdict that is a failure or masked: the agent may make a reward of it that says nothing of this."""
        answered = HttpReply(reply.status, reply.body, [])
        try:
            if reply.status != 200:
                raise Failure(f"http_{reply.status}", f"verify answered {reply.status}: {answered.start()}")
            verdict = verdict_in(answered.json(), incoming.json())
            self.mask = verdict.mask or self.mask
        except Failure as failure:
            failure.stage = failure.stage or "verify"
            self._unanswered[incoming.path, incoming.body] = failure

    async def _pass_on(self, incoming: Incoming, resources: RemoteResources) -> Reply:
        if incoming.path == "/seed_session" and resources.seeded is not None and self._is_row(incoming):
            return passed_back(resources.seeded)  # the session began when the rollout was opened
        limits = self.episode.limits
        stages = {"/verify": ("verify", limits.verify), "/seed_session": ("open", limits.open)}
        stage, seconds = stages.get(incoming.path, ("tool", limits.tool))
        path, headers = with_query(incoming.path, incoming), passed_on(incoming)
        work = resources.pass_on(method_of(incoming), path, incoming.body, headers)
        return passed_back(await step(stage, seconds, work))  # type: ignore[arg-type]

    def _is_row(self, incoming: Incoming) -> bool:
        """Whether the agent sent the row as it was given, with nothing of its own."""
        return _without_indices(incoming.json()) == _without_indices(self.episode.job.row)

    async def _ask_ours(self, incoming: Incoming) -> Reply:
        episode = self.episode
        if incoming.path == "/seed_session":
            body = incoming.json()
            session = body.get("resources_session_id")
            return self._with_cookie({"resources_session_id": session} if isinstance(session, str) else {})
        if incoming.path == "/verify":
            row = incoming.json()
            response = Response.checked(row.get("response"))
            judge = episode.resources.verify
            judged = await step("verify", episode.limits.verify, awaited(judge, episode.task, response))
            verdict = Verdict.of(judged, judge)
            self.mask = verdict.mask or self.mask
            return self._with_cookie({**row, **verdict_row(verdict)})
        if incoming.path == "/close_session":
            return self._with_cookie({"resources_session_id": incoming.json().get("resources_session_id")})
        output = await self.call_tool(incoming.path[1:], incoming.body.decode("utf-8", "replace"))
        return Reply(output.encode(), headers=[self._cookie])

    def _with_cookie(self, content: dict[str, Any]) -> Reply:
        return Reply(encode(content), headers=[self._cookie])

    @property
    def _cookie(self) -> tuple[bytes, bytes]:
        return b"set-cookie", f"ludus={self.key}; Path=/; HttpOnly".encode()


class Front(Proxy):
    """Answers the agents of all rollouts in flight."""

    channels = True
    passes_tools_on = True

    def __init__(self) -> None:
        super().__init__()
        self._rollouts: dict[str, PlayedRollout] = {}
        #: what an agent gets that asks its resources server for the metrics of a run
        self.metrics: dict[str, Any] | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._url.rpartition(":")[2])

    @contextlib.contextmanager
    def register(self, episode: Episode, max_calls: int, **settings: Any) -> Iterator[PlayedRollout]:
        """Answer the agent of one rollout, while this is entered."""
        rollout = PlayedRollout(episode, self._url, max_calls, **settings)
        self._rollouts[rollout.key] = rollout
        try:
            yield rollout
        finally:
            del self._rollouts[rollout.key]
            rollout.close()

    def _program(self, incoming: Incoming) -> PlayedRollout:
        named = incoming.header(_ROLLOUT) or incoming.rollout or incoming.cookie("ludus")
        rollout = self._rollouts.get(named or "")
        if rollout is None and not named and len(self._rollouts) == 1:
            self.guard.admit(incoming)
            if not is_ours(incoming.scope.get("client")):
                raise Refusal(403, "this request names no rollout, and comes from a process that is not the agent's")
            rollout = next(iter(self._rollouts.values()))  # an agent that names none plays one rollout at a time
        if rollout is None:
            cause = "is over" if named else "is not named: play one rollout at a time, with --concurrency 1"
            if not named and self._rollouts and is_ours(incoming.scope.get("client")):
                self._note_unnamed(f"the agent's request to {incoming.path:.80}: its rollout {cause}")
            raise Refusal(409, f"the rollout of this request {cause}")
        return rollout

    def _note_unnamed(self, cause: str) -> None:
        """Let no rollout in flight earn a reward for what an agent makes of a refused request."""
        for rollout in self._rollouts.values():
            rollout.unnamed = rollout.unnamed or Failure("unnamed_rollout", cause, stage="agent")

    def cannot_carry(self, incoming: Incoming, tools: list[str]) -> None:
        """Refuse tools that only a provider's servers run."""
        ModelRoutes.cannot_carry(self, incoming, tools)

    def admit(self, incoming: Incoming) -> None:
        """Refuse a request that names no rollout, unless it asks for the metrics of a run that has ended."""
        if not self._asks_for_metrics(incoming):
            super().admit(incoming)

    def _asks_for_metrics(self, incoming: Incoming) -> bool:
        return self.metrics is not None and incoming.path == "/aggregate_metrics"

    def _other(self, incoming: Incoming) -> Handler:
        return self.model_route(incoming) or self._resources  # which may have routes of any method

    async def _resources(self, incoming: Incoming) -> Reply:
        if self._asks_for_metrics(incoming):
            return Reply(encode(self.metrics))
        rollout = self._program(incoming)
        await read_body(incoming, self.guard)
        return await rollout.resources(incoming)


def _without_indices(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_ng_")}
