"""Everything that one process serves: the applications of a plan. Shared objects are opened once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from ludus.agent import Agent
from ludus.collection.player import Player
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.listening import Listening
from ludus.model import Model
from ludus.models import open_model
from ludus.remote.wiring import on_servers
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.runtime.processes import shared_pool
from ludus.serve.agents import AgentApp
from ludus.serve.forwarding import Forwarding, Peers
from ludus.serve.mcp import McpEndpoint
from ludus.serve.models import ModelApp
from ludus.serve.plan import Plan, Server
from ludus.serve.resources import ResourcesApp
from ludus.serve.sessions import Lease

Sockets = dict[str, socket.socket]


class Site:
    """The servers of a plan in this process. `waiting_for` names what is being started, and is empty when all run."""

    def __init__(self, plan: Plan, worker: int = 0, peers: Peers | None = None) -> None:
        self.plan = plan
        self.worker = worker
        self.peers = peers
        self.apps: dict[str, App] = {}
        self.waiting_for = "its plan"
        self._guard = Guard(token=plan.token(), body_bytes=plan.body_bytes)
        self._shared: dict[str, Any] = {}
        self._agents: dict[str, Agent] = {}
        self._models: dict[str, Model] = {}
        self._listening: list[Listening] = []
        self._stack = contextlib.AsyncExitStack()

    async def start(self, sockets: Sockets) -> None:
        """Open models and environments, then listen. After an error everything is closed again."""
        try:
            await self._start(sockets)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, close every session, then close what the sessions shared."""
        await asyncio.gather(*(listening.stop() for listening in self._listening), return_exceptions=True)
        for app in self.apps.values():
            if isinstance(app, ResourcesApp | AgentApp):
                await app.stop()
        await self._stack.aclose()

    async def _start(self, sockets: Sockets) -> None:
        applications = await self.open()
        self.waiting_for = "its sockets"
        for name, app in applications.items():
            serving = Listening(app, sockets[name], channels=self.plan.workers == 1)
            self._listening.append(serving)
            await serving.begin()
        self.waiting_for = ""

    async def open(self) -> dict[str, Any]:
        """Open models and environments. Returns the applications by the names of their servers."""
        stack, plan, servers = self._stack, self.plan, self.plan.servers
        stack.enter_context(fewer_garbage_collections())
        await stack.enter_async_context(shared_pool())
        for server in servers:
            if server.kind == "responses_api_models":
                self.waiting_for = f"model {server.name}"
                model = model_of(server)
                model.capture_tokens = plan.tokens
                self._models[server.name] = await stack.enter_async_context(model)
        for server in servers:
            self.waiting_for = f"{server.name}"
            self.apps[server.name] = await self._app(server)
        applications: dict[str, Any] = {}
        for server in servers:
            app: Any = self.apps[server.name]
            app.worker = self.worker if plan.workers > 1 else None
            if plan.mcp and isinstance(app, ResourcesApp):
                app.mcp = await stack.enter_async_context(McpEndpoint(app.sessions))
            if self.peers is not None and isinstance(app, ResourcesApp):
                app = Forwarding(app, app.session_name, server.name, self.worker, self.peers)
                await stack.enter_async_context(app)
            applications[server.name] = app
        return applications

    async def _app(self, server: Server) -> App:
        plan = self.plan
        if server.kind == "responses_api_models":
            return ModelApp(self._models[server.name], guard=self._guard)
        environment = environment_of(server, plan)
        shared = await self._open_shared(server, environment)
        if server.kind == "resources_servers":
            own: App | None = environment.resources.application(shared, self._guard)
            if own is not None:
                if plan.workers > 1:
                    cause = f"{server.name} keeps its sessions in one process, and {plan.workers} are asked for"
                    raise UserError(cause, "Leave --workers out")
                return own
            lease = Lease(idle=plan.idle_seconds, max_sessions=-(-plan.max_sessions // plan.workers))  # rounded up
            return ResourcesApp(
                environment, shared, instance=server.name, guard=self._guard, lease=lease, worker=self.worker
            )
        model = self._models.get(server.model or "")
        if model is None:
            raise UserError(f"agent {server.name} names no model server", "Give one with --model SPEC")
        policies = tuple(plan.allow_policy)
        agent = await self._open_agent(server, environment)
        player = Player(environment, shared, agent, model, tokens=plan.tokens)
        return AgentApp(player, guard=self._guard, allowed_policies=policies, tokens=plan.tokens)

    async def _open_shared(self, server: Server, environment: Environment) -> Any:
        """The shared object of an environment's sessions. Servers use the same one if their resources are the same."""
        settings = {key: value for key, value in server.settings.items() if key.startswith("resources.")}
        key = f"{server.environment} {settings} {server.resources}"
        if key not in self._shared:
            self._shared[key] = await self._stack.enter_async_context(environment.share())
        return self._shared[key]

    async def _open_agent(self, server: Server, environment: Environment) -> Agent:
        """The agent of an environment, with what its rollouts share."""
        key = f"{server.environment} {server.settings} {server.resources}"
        if key not in self._agents:
            self._agents[key] = await self._stack.enter_async_context(environment.agent.share())
        return self._agents[key]


def check(plan: Plan) -> None:
    """Raise an error for a wrong name, setting or model, before a server starts."""
    for server in plan.servers:
        if server.kind == "responses_api_models":
            model_of(server)
        else:
            environment_of(server, plan)


def environment_of(server: Server, plan: Plan) -> Environment:
    """The environment of a server, with its settings applied."""
    if server.environment is None:
        raise UserError(f"server {server.name} names no environment")
    environment = Environment.load(server.environment)
    environment.configure(dict(server.settings))
    return on_servers(environment, resources=server.resources, token_env=plan.token_env)


def model_of(server: Server) -> Model:
    """The model of a server, not started yet."""
    spec, settings = server.spec or "local", None
    if isinstance(spec, dict) and "spec" in spec:
        spec, settings = spec["spec"], spec["settings"]
    return open_model(spec, settings)
