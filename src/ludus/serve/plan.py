"""What to serve: a description that travels to worker processes as JSON, without secrets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ludus.http.guard import required_token
from ludus.http.listening import address

Kind = Literal["resources_servers", "responses_api_agents", "responses_api_models", "head"]
HEAD_PORT = 11000


class Server(BaseModel):
    """One server: its name, its kind, and what it serves. Port 0 means any free port."""

    model_config = ConfigDict(extra="forbid")

    #: its name in the head server
    name: str
    #: what it serves
    kind: Kind
    #: what serves it, for the head server
    implementation: str
    #: the environment, of resources and agents
    environment: str | None = None
    #: settings of the environment or the model
    settings: dict[str, Any] = {}
    resources: str | None = None  # of an agent: the URL of its resources server, if not in this process
    model: str | None = None  # of an agent: the name of its model server
    spec: str | dict[str, Any] | None = None  # of a model: the argument of `open_model`
    #: the address to listen on
    host: str = "127.0.0.1"
    #: the port; 0 is any free one
    port: int = 0
    block: str | None = None  # the path of its block, if a configuration describes it, for error messages

    @property
    def url(self) -> str:
        """The URL of the server, once its port is known."""
        return address(self.host, self.port)


class Plan(BaseModel):
    """Servers that run together, and their options. `token_env` names the environment variable with the token."""

    model_config = ConfigDict(extra="forbid")

    #: the servers
    servers: list[Server] = []
    #: the address of the head server
    host: str = "127.0.0.1"
    #: the port of the head server; null: no head server
    head_port: int | None = HEAD_PORT
    #: the path of its block, if a configuration describes it
    head_block: str | None = None
    #: processes that share the sockets
    workers: int = 1
    token_env: str = "LUDUS_TOKEN"
    #: open sessions per process, at most
    max_sessions: int = 16384
    #: idle seconds before a session is closed
    idle_seconds: float = 600.0
    #: the largest body of a request
    body_bytes: int = 64 << 20
    #: URLs that a request may name as its `policy`
    allow_policy: list[str] = []
    #: whether to record token ids
    tokens: bool = False
    #: whether to serve tools over MCP too
    mcp: bool = False

    @classmethod
    def of(
        cls,
        environments: list[str],
        model: str | dict[str, Any] | None = None,
        *,
        settings: dict[str, Any] | None = None,
        resources_only: bool = False,
        resources: str | None = None,
        **options: Any,
    ) -> Plan:
        """A plan with resources and an agent for each environment, and one model for all.

        With `resources_only` there is no model and no agent. `resources` is the URL of a resources server to use.
        """
        plan = cls(**options)
        settings = dict(settings or {})
        model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
        names: set[str] = set()
        for which in environments:
            name = _instance(which, names)
            common: dict[str, Any] = {"environment": which, "settings": settings}
            if resources is None:
                plan.servers.append(Server(name=name, kind="resources_servers", implementation=name, **common))
            if not resources_only:
                agent: dict[str, Any] = {"name": f"{name}_simple_agent", "implementation": "simple_agent", **common}
                agent |= {"resources": resources, "model": "policy_model"}
                plan.servers.append(Server(kind="responses_api_agents", **agent))
        if not resources_only:
            spec = {"spec": model or "local", "settings": model_settings} if model_settings else model or "local"
            kind: Kind = "responses_api_models"
            plan.servers.append(Server(name="policy_model", kind=kind, implementation="openai_model", spec=spec))
        for server in plan.servers:
            server.host = plan.host
        return plan

    def token(self) -> str | None:
        """The token that clients must send. Listening on more than loopback requires one."""
        return required_token({self.host, *(server.host for server in self.servers)}, self.token_env)


def _instance(which: str, taken: set[str]) -> str:
    """A free name for an environment's servers: the environment's name, without its folder."""
    base = which.rstrip("/").rsplit("/", 1)[-1].replace(":", "_")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name
