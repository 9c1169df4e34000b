"""A resources server: an environment's tools and its verifier, each rollout in a session of its own.

The routes are those of NeMo Gym's resources servers, with three additions: `POST /close_session`, `GET /health` and
`GET /metrics`. A session is named by the header `x-ludus-session`, or by the cookie that such clients send along. A
tool is looked up by its name among the environment's tools; nothing else of it can be reached.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import ValidationError

from ludus.agents.recorded import judge_again, judge_text
from ludus.environment import Environment
from ludus.errors import Failure
from ludus.game import Game
from ludus.http.app import App, Guard
from ludus.http.messages import TEXT, Headers, Incoming, Receive, Refusal, Reply, Scope, Send
from ludus.outcome import Verdict
from ludus.record import verdict_row
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Job
from ludus.runtime.boundary import step
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus.serve.aggregate import aggregate_metrics
from ludus.serve.mcp import TOKEN_HEADER, McpDoor
from ludus.serve.openapi import describe_resources
from ludus.serve.sessions import Lease, Session, Sessions
from ludus.task import Task, derive_seed, digest
from ludus.tools import ToolError, not_found

SESSION_HEADER = b"x-ludus-session"
SEED_HEADER = b"x-ludus-seed"
LAST_HEADER = b"x-ludus-last"

#: The status of a tool call that went wrong. Clients show the body to the model whatever it is; people read the status.
STATUS_OF_TOOL = {"unknown_tool": 404, "bad_arguments": 422, "raised": 500}


class ResourcesApp(App):
    """One environment's resources over HTTP. `instance` is how clients call it in cookies."""

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
        self.mcp: McpDoor | None = None
        self.cookie = f"{environment.resources.__name__}___{instance or environment.name}"
        is_game = issubclass(environment.resources, Game)
        self._takes_any_row = environment.resources.open is Resources.open and not is_game
        self.routes |= {
            ("POST", "/seed_session"): self.seed_session,
            ("POST", "/verify"): self.verify,
            ("POST", "/close_session"): self.close_session,
            ("POST", "/aggregate_metrics"): aggregate_metrics,
            ("GET", "/reverify_mode"): self.reverify_mode,
            ("GET", "/openapi.json"): self.openapi,
        }
        if is_game:
            self.routes |= {("POST", "/reset"): self.reset, ("POST", "/step"): self.step}
        self.other = self.call_tool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; MCP has a door of its own."""
        if self.mcp is not None and scope.get("path") in ("/mcp", "/mcp/"):
            if self.guard.token is not None:
                try:
                    self.authorise(Incoming(scope, receive, scope["method"], scope["path"]), self.guard.token)
                except Refusal as refused:
                    await self.refuse(refused, send)
                    return
            await self._through(self.mcp, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _through(self, door: McpDoor, scope: Scope, receive: Receive, send: Send) -> None:
        if self.busy >= self.guard.at_once:
            await self.refuse(self.too_busy(), send)
            return
        self.busy += 1
        try:
            await door(scope, receive, send)
        finally:
            self.busy -= 1

    async def stop(self) -> None:
        """Close every session."""
        await self.sessions.stop()

    def state(self) -> dict[str, float]:
        """How many sessions there are and were."""
        sessions = self.sessions
        ended = {f"sessions_{why}_total": float(count) for why, count in sorted(sessions.ended.items())}
        return super().state() | {"sessions_open": len(sessions), "sessions_opened_total": sessions.opened} | ended

    async def seed_session(self, incoming: Incoming) -> Reply:
        """Open a session for a row. A client that had one gets a new one: nothing of the old is left."""
        session = await self._seed(incoming, incoming.json())
        told: dict[str, Any] = {}
        if self.mcp is not None:
            token = {"X-NeMo-Gym-Session-Token": session.id}
            named = {"server_name": self.environment.name, "url_path": "/mcp", "transport": "http"}
            told["mcp"] = {**named, "headers": token}
        return Reply(encode(told), headers=self._named(session))

    async def call_tool(self, incoming: Incoming) -> Reply:
        """Run a tool. The body is the arguments that the model wrote, and the reply is what the model sees."""
        name = incoming.path[1:]
        if name not in self.environment.resources.toolbox and not self._has_tools_of_its_own:
            return Reply(not_found().encode(), 404)
        arguments = incoming.body.decode("utf-8", "replace")
        named = incoming.header(SESSION_HEADER)  # a client that names its session need not be told it again
        held = named or self.session_name(incoming) or (await self._unseeded()).id
        with self.sessions.use(held) as session:
            work = session.resources.call(name, arguments)
            text = await step("tool", self.environment.limits.tool, work, f"tool `{name}`")
        status = STATUS_OF_TOOL[text.kind] if isinstance(text, ToolError) else 200
        kind = b"application/json" if text[:1] in '{["' else TEXT
        return Reply(text.encode(), status, kind, [] if named else self._named(session))

    async def verify(self, incoming: Incoming) -> Reply:
        """Judge a response. The reply is the request with the reward and what else the verdict says.

        Without a session, the tool calls in the response are run again on a fresh one where there is state to judge. A
        client of ours says that this is the last it wants of its session: it need not send the row again, gets the
        verdict alone, and the session is closed.
        """
        body = incoming.json()
        response = self._response(body)
        held = self.session_name(incoming)
        if held is None:
            row = _without_response(body)
            return Reply(encode(judged(body, await self._verify_alone(incoming, row, response))))
        last = incoming.header(LAST_HEADER) is not None
        with self.sessions.use(held) as session:
            task = session.task if last and session.task is not None else self._task(_without_response(body))
            verdict = await self._verify(session.resources, task, response)
        if last:
            await self.sessions.close(held)
            return Reply(encode(judged({}, verdict)))
        self.sessions.linger(session)
        return Reply(encode(judged(body, verdict)), headers=self._named(session))

    async def close_session(self, incoming: Incoming) -> Reply:
        """Close a session now. Closing one that is over already is no mistake."""
        held = self.session_name(incoming)
        if held is None:
            raise Refusal(400, "no session is named: send the header x-ludus-session")
        return Reply.of({"closed": await self.sessions.close(held)})

    async def reverify_mode(self, incoming: Incoming) -> Reply:
        """Whether a stored rollout can be judged again without its session: always, by replay if need be."""
        return Reply(b'"stateless"')

    async def openapi(self, incoming: Incoming) -> Reply:
        """The routes, and the tools with their real schemas."""
        return Reply.of(describe_resources(self.environment, self.sessions.fresh().tools()))

    async def reset(self, incoming: Incoming) -> Reply:
        """Begin a game: a session for the row, and what the player sees first."""
        session = await self._seed(incoming, incoming.json())
        game, limits = session.resources, self.environment.limits
        assert isinstance(game, Game)
        observation = await step("tool", limits.tool, game.begin(session.task))
        return Reply(encode({"observation": observation, "info": {}}), headers=self._named(session))

    async def step(self, incoming: Incoming) -> Reply:
        """One turn of a game: what the model answered in, what the player sees next out."""
        body = incoming.json()
        response = self._response(body)
        with self.sessions.use(self._needed(incoming)) as session:
            game = session.resources
            assert isinstance(game, Game)
            done = await step("tool", self.environment.limits.tool, game.advance(session.task, response))
        if done.terminated or done.truncated:
            self.sessions.linger(session)
        info = dict(done.info)
        if done.tool_outputs:
            info["tool_outputs"] = [{"call_id": name, "output": output} for name, output in done.tool_outputs]
        told = {"observation": done.observation, "reward": done.reward, "terminated": done.terminated}
        return Reply(encode({**told, "truncated": done.truncated, "info": info}), headers=self._named(session))

    @property
    def _has_tools_of_its_own(self) -> bool:
        """Whether the environment decides in `call` what its tools are, as one that speaks to another server does."""
        return self.environment.resources.call is not Resources.call

    async def _seed(self, incoming: Incoming, row: dict[str, Any]) -> Session:
        held = self.session_name(incoming)
        if held is not None:
            await self.sessions.close(held, "seeded again")
        task = self._task(row) if "responses_create_params" in row or not self._takes_any_row else None
        return await self.sessions.open(task, self._seed_of(incoming, row))

    async def _unseeded(self) -> Session:
        if not self._takes_any_row:
            raise Refusal(400, "no session is open: POST /seed_session with the row first")
        return await self.sessions.open(None)

    async def _verify_alone(self, incoming: Incoming, row: dict[str, Any], response: Response) -> Verdict:
        task, seed, environment = self._task(row), self._seed_of(incoming, row), self.environment
        session = self.sessions.fresh(seed)
        if not session.has_session:
            return await judge_text(session, task, response, environment.limits)
        name = digest(row)
        job = Job(name, name, 0, task, row, seed=seed, environment=environment.name)
        verdict, _ = await judge_again(job, session, response, environment.limits)
        return verdict

    async def _verify(self, resources: Resources, task: Task, response: Response) -> Verdict:
        work = awaited(resources.verify, task, response)
        given = await step("verify", self.environment.limits.verify, work)
        return Verdict.of(given)

    def _task(self, row: dict[str, Any]) -> Task:
        return checked_task(self.environment, row)

    def _response(self, body: dict[str, Any]) -> Response:
        try:
            return Response.checked(body.get("response"))
        except Failure as error:
            raise Refusal.field(["response"], "value_error", error.cause) from error

    def session_name(self, incoming: Incoming) -> str | None:
        """Which session a request is for."""
        return incoming.header(SESSION_HEADER) or incoming.cookie(self.cookie) or incoming.header(TOKEN_HEADER.encode())

    def _needed(self, incoming: Incoming) -> str:
        held = self.session_name(incoming)
        if held is None:
            raise Refusal(400, "no session is open: begin one first")
        return held

    def _seed_of(self, incoming: Incoming, row: dict[str, Any]) -> int:
        given = incoming.header(SEED_HEADER) or ""
        return int(given) if given.isdigit() and len(given) < 20 else derive_seed(0, incoming.rollout or digest(row), 0)

    def _named(self, session: Session) -> Headers:
        name = session.id.encode()
        cookie = f"{self.cookie}={session.id}; path=/; Max-Age=1209600; httponly; samesite=lax".encode()
        return [(SESSION_HEADER, name), (b"set-cookie", cookie)]


def checked_task(environment: Environment, row: dict[str, Any]) -> Task:
    """The task in a row; a row that does not fit is refused with the fields that are wrong.

    Datasets of one shape for all rows fill what a row does not have with nulls, at any depth: they may be left out.
    """
    try:
        return environment.task(row)
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            return environment.task(_without_nulls(row))
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise Refusal(422, [{**each, "loc": ["body", *each["loc"]]} for each in problems]) from error


def judged(body: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A request for a verdict with the verdict in it, and what NeMo Gym's trainers read of a mask."""
    row = {**body, "verdict_fields": [], **verdict_row(verdict)}
    if verdict.mask:
        config = row.get("instance_config")
        row["mask_sample"] = True
        row["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    return row


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _without_response(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "response"}
