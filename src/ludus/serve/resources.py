"""A resources server: an environment's tools and its verifier, with one session per rollout.

The routes are those of NeMo Gym's resources servers, with three additions: `POST /close_session`, `GET /health` and
`GET /metrics`. The header `x-ludus-session` names a session, or the cookie that NeMo Gym's clients send. A tool is
looked up by its name among the environment's tools; no other method can be called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

from pydantic import ValidationError

from ludus.agents.recorded import judge_again, judge_text
from ludus.environment import Environment
from ludus.errors import Failure
from ludus.game import Game
from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.messages import TEXT, Headers, Incoming, Receive, Refusal, Reply, Scope, Send
from ludus.outcome import Verdict
from ludus.record import verdict_row
from ludus.remote.http import LAST, RAISED, SEED, SESSION
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Job
from ludus.runtime.boundary import step
from ludus.runtime.encoding import encode
from ludus.runtime.numbers import whole_number
from ludus.runtime.threads import awaited
from ludus.serve.behind import STATELESS, MetricsRoute, reverify_mode, server_behind
from ludus.serve.mcp import TOKEN_HEADER, McpEndpoint
from ludus.serve.openapi import describe_resources
from ludus.serve.sessions import Lease, Session, Sessions
from ludus.task import Task, derive_seed, digest
from ludus.tools import ToolError, not_found

SESSION_HEADER, SEED_HEADER, LAST_HEADER = SESSION.encode(), SEED.encode(), LAST.encode()

#: The status of a failed tool call. Clients show the body to the model with any status; the status is for people.
STATUS_OF_TOOL = {"unknown_tool": 404, "bad_arguments": 422, "raised": 500}


class ResourcesApp(App):
    """One environment's resources over HTTP. `instance` is the server's name in cookies."""

    def __init__(
        self,
        environment: Environment,
        shared: Any = None,
        *,
        instance: str | None = None,
        guard: Guard | None = None,
        lease: Lease | None = None,
        worker: int = 0,
    ) -> None:
        super().__init__(guard)
        self.environment = environment
        self.sessions = Sessions(environment, shared, lease, worker)
        self.mcp: McpEndpoint | None = None
        self._behind = server_behind(environment, shared)
        self.cookie = f"{environment.resources.__name__}___{instance or environment.name}"
        is_game = issubclass(environment.resources, Game)
        self._takes_any_row = environment.resources.open is Resources.open and not is_game
        self.routes |= {
            ("POST", "/seed_session"): self.seed_session,
            ("POST", "/verify"): self.verify,
            ("POST", "/close_session"): self.close_session,
            ("POST", "/aggregate_metrics"): MetricsRoute(environment, shared),
            ("GET", "/reverify_mode"): self.reverify_mode,
            ("GET", "/openapi.json"): self.openapi,
        }
        if is_game:
            self.routes |= {("POST", "/reset"): self.reset, ("POST", "/step"): self.step}
        self.other = self.call_tool

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Answer one request, `/mcp` with the MCP endpoint."""
        if self.mcp is None or scope.get("path") not in ("/mcp", "/mcp/"):
            return super().__call__(scope, receive, send)
        return self._answer_mcp(self.mcp, scope, receive, send)

    async def _answer_mcp(self, endpoint: McpEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._pass_to_mcp(endpoint, scope, receive, send)
        except Refusal as refused:
            await self.refuse(refused, send)

    async def _pass_to_mcp(self, endpoint: McpEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        self.admit(incoming)
        if self.busy >= self.guard.at_once:
            raise self.too_busy()
        self.busy += 1
        try:
            if incoming.method == "POST":
                incoming.body = await self.guard.read(incoming)
            await endpoint(scope, incoming.receive_again(), send)
        finally:
            self.busy -= 1

    async def stop(self) -> None:
        """Close every session."""
        await self.sessions.stop()

    def state(self) -> dict[str, float]:
        """How many sessions are open, were opened, and ended for each reason."""
        sessions = self.sessions
        ended = {f"sessions_{why}_total": float(count) for why, count in sorted(sessions.ended.items())}
        return super().state() | {"sessions_open": len(sessions), "sessions_opened_total": sessions.opened} | ended

    async def seed_session(self, incoming: Incoming) -> Reply:
        """Open a session for a row. A session that the client already has is closed first."""
        session = await self._seed(incoming, incoming.json())
        reply: dict[str, Any] = {}
        if self.mcp is not None:
            token = {"X-NeMo-Gym-Session-Token": session.id}
            endpoint = {"server_name": self.environment.name, "url_path": "/mcp", "transport": "http"}
            reply["mcp"] = {**endpoint, "headers": token}
        return Reply(encode(reply), headers=self._session_headers(session))

    async def call_tool(self, incoming: Incoming) -> Reply:
        """Run a tool. The body is the arguments that the model wrote, and the reply is what the model sees."""
        name = incoming.path[1:]
        if not name:
            raise Refusal(404, "Not Found")
        resources = self.environment.resources  # an own `call` may have tools outside its toolbox
        if name not in resources.toolbox and resources.call is Resources.call:
            return Reply(not_found().encode(), 404)
        arguments = incoming.body.decode("utf-8", "replace")
        named = incoming.header(SESSION_HEADER)  # a client that sends it needs no session headers in the reply
        session_id = named or self.session_name(incoming) or (await self._open_without_row()).id
        with self.sessions.use(session_id) as session:
            work = session.resources.call(name, arguments)
            text = await step("tool", self.environment.limits_for(session.task).tool, work, f"tool `{name}`")
        status, headers = 200, [] if named else self._session_headers(session)
        if isinstance(text, ToolError):
            status, headers = STATUS_OF_TOOL[text.kind], headers + _raised_headers(text)
        kind = b"application/json" if text[:1] in '{["' else TEXT
        return Reply(text.encode("utf-8", "replace"), status, kind, headers)

    async def verify(self, incoming: Incoming) -> Reply:
        """Judge a response. The reply is the request with the reward and the other fields of the verdict.

        Without a session, and if the environment has state, the tool calls in the response run again in a new session;
        the `model_calls` of a record say which of them ran at once. With the header `x-ludus-last` (`RemoteResources`
        sends it), the request needs no row, the reply is the verdict alone, and the session is closed.
        """
        body = incoming.json()
        response = self._response(body)
        session_id = self.session_name(incoming)
        if session_id is None:
            row = _without_response(body)
            return Reply(encode(with_verdict(body, await self._verify_without_session(incoming, row, response))))
        last = incoming.header(LAST_HEADER) is not None
        with self.sessions.use(session_id) as session:
            task = session.task if last and session.task is not None else self._task(_without_response(body))
            verdict = await self._verify(session.resources, task, response)
        if last:
            await self.sessions.close(session_id)
            return Reply(encode(with_verdict({}, verdict)))
        self.sessions.expire_soon(session)
        return Reply(encode(with_verdict(body, verdict)), headers=self._session_headers(session))

    async def close_session(self, incoming: Incoming) -> Reply:
        """Close a session now. A session that is already over is not an error."""
        session_id = self.session_name(incoming)
        if session_id is None:
            raise Refusal(400, "no session is named: send the header x-ludus-session")
        return Reply.of({"closed": await self.sessions.close(session_id)})

    async def reverify_mode(self, incoming: Incoming) -> Reply:
        """Whether a stored rollout can be judged again without its session: ours can, by replay if it has state."""
        return Reply.of(await reverify_mode(self._behind))

    async def openapi(self, incoming: Incoming) -> Reply:
        """The routes, and the tools with their real schemas."""
        return Reply.of(describe_resources(self.environment, self.sessions.fresh().tools()))

    async def reset(self, incoming: Incoming) -> Reply:
        """Begin a game: open a session for the row, and reply with the first observation."""
        session = await self._seed(incoming, incoming.json())
        game, limits = session.resources, self.environment.limits
        assert isinstance(game, Game)
        observation = await step("tool", limits.tool, game.begin(session.task))
        return Reply(encode({"observation": observation, "info": {}}), headers=self._session_headers(session))

    async def step(self, incoming: Incoming) -> Reply:
        """Play one turn of a game: the model's answer comes in, the next observation goes out."""
        body = incoming.json()
        response = self._response(body)
        session_id = self.session_name(incoming)
        if session_id is None:
            raise Refusal(400, "no session is open: POST /reset with the row first")
        with self.sessions.use(session_id) as session:
            game = session.resources
            assert isinstance(game, Game)
            done = await step("tool", self.environment.limits.tool, game.advance(session.task, response))
        if done.terminated or done.truncated:
            self.sessions.expire_soon(session)
        info = dict(done.info)
        if done.tool_outputs:
            info["tool_outputs"] = [{"call_id": name, "output": output} for name, output in done.tool_outputs]
        ends = {"terminated": done.terminated, "truncated": done.truncated}
        reply = {"observation": done.observation, "reward": done.reward, **ends, "info": info}
        return Reply(encode(reply), headers=self._session_headers(session))

    async def _seed(self, incoming: Incoming, row: dict[str, Any]) -> Session:
        session_id = self.session_name(incoming)
        if session_id is not None:
            await self.sessions.close(session_id, "seeded again")
        task = self._task(row) if "responses_create_params" in row or not self._takes_any_row else None
        return await self.sessions.open(task, self._seed_of(incoming, row))

    async def _open_without_row(self) -> Session:
        if not self._takes_any_row:
            raise Refusal(400, "no session is open: POST /seed_session with the row first")
        return await self.sessions.open(None)

    async def _verify_without_session(self, incoming: Incoming, row: dict[str, Any], response: Response) -> Verdict:
        task, seed, environment = self._task(row), self._seed_of(incoming, row), self.environment
        session = self.sessions.fresh(seed, seed_known=requested_seed(incoming) is not None)
        if not session.has_session or (self._behind and await reverify_mode(self._behind) == STATELESS):
            return await judge_text(session, task, response, environment.limits)
        name = digest(row)
        job = Job(name, name, 0, task, row, seed=seed, environment=environment.name)
        verdict, _ = await judge_again(job, session, response, environment.limits_for(task), row.get("model_calls"))
        return verdict

    async def _verify(self, resources: Resources, task: Task, response: Response) -> Verdict:
        work = awaited(resources.verify, task, response)
        return Verdict.of(await step("verify", self.environment.limits_for(task).verify, work), resources.verify)

    def _task(self, row: dict[str, Any]) -> Task:
        return checked_task(self.environment, row)

    def _response(self, body: dict[str, Any]) -> Response:
        try:
            return Response.checked(body.get("response"))
        except Failure as error:
            raise Refusal.field(["response"], "value_error", error.cause) from error

    def session_name(self, incoming: Incoming) -> str | None:
        """The id of the session that a request names."""
        return incoming.header(SESSION_HEADER) or incoming.cookie(self.cookie) or incoming.header(TOKEN_HEADER.encode())

    def _seed_of(self, incoming: Incoming, row: dict[str, Any]) -> int:
        seed = requested_seed(incoming)
        return seed if seed is not None else derive_seed(0, incoming.rollout or digest(row), 0)

    def _session_headers(self, session: Session) -> Headers:
        name = session.id.encode()
        cookie = f"{self.cookie}={session.id}; path=/; Max-Age=1209600; httponly; samesite=lax".encode()
        return [(SESSION_HEADER, name), (b"set-cookie", cookie)]


def _raised_headers(error: ToolError) -> Headers:
    """The exception that a tool raised, and where: for the client, never for the model."""
    if error.raised is None:
        return []
    told = f"{error.raised.exception} {error.raised.where or ''}".strip()
    return [(RAISED.encode(), told.encode("ascii", "backslashreplace"))]


def checked_task(environment: Environment, row: dict[str, Any]) -> Task:
    """The task of a row. An invalid row is refused, with the wrong fields.

    Some datasets fill missing fields with nulls, at any depth: an invalid row is tried again without nulls.
    """
    try:
        return environment.task(row)
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            return environment.task(_without_nulls(row))
        raise refused_row(error) from error


def refused_row(error: ValidationError, skip: int = 0) -> Refusal:
    """The refusal of a row, with its wrong fields; `skip` drops the first parts of each field's path."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    detail = [{**problem, "loc": ["body", *problem["loc"][skip:]]} for problem in problems]
    return Refusal(422, detail, stage="open", kind="bad_row")


def with_verdict(body: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A request with its verdict; for a mask, also with the fields that NeMo Gym's trainers read."""
    row = {**body, "verdict_fields": [], **verdict_row(verdict)}
    if verdict.mask:
        config = row.get("instance_config")
        row["mask_sample"] = True
        row["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    return row


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [_without_nulls(entry) for entry in value] if isinstance(value, list) else value


def requested_seed(incoming: Incoming) -> int | None:
    """The seed that a request names, or None."""
    return whole_number(incoming.header(SEED_HEADER) or "", digits=19)


def _without_response(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "response"}
