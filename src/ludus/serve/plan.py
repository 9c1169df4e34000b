"""What is to be served: a plain description that a worker process can be handed as JSON, without any secret in it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ludus.errors import UserError
from ludus.http.listening import address
from ludus.runtime.keys import look_up_key

Kind = Literal["resources_servers", "responses_api_agents", "responses_api_models", "head"]
LOOPBACK = ("127.0.0.1", "::1", "localhost")
HEAD_PORT = 11000


class Server(BaseModel):
    """One server: its name, its kind, and the part of the plan that it serves. Port 0 means any free one."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    implementation: str
    environment: str | None = None
    settings: dict[str, Any] = {}
    resources: str | None = None  # of an agent: the URL of resources that run elsewhere
    model: str | None = None  # of an agent: the name of the model server whose model it asks
    spec: str | dict[str, Any] | None = None  # of a model: what `open_model` takes
    host: str = "127.0.0.1"
    port: int = 0

    @property
    def url(self) -> str:
        """Where it listens, once its port is known."""
        return address(self.host, self.port)


class Plan(BaseModel):
    """Servers that belong together, and how they are run. The token is named by its variable, never written here."""

    model_config = ConfigDict(extra="forbid")

    servers: list[Server] = []
    host: str = "127.0.0.1"
    head_port: int | None = HEAD_PORT
    workers: int = 1
    token_env: str = "LUDUS_TOKEN"
    max_sessions: int = 16384
    idle_seconds: float = 600.0
    body_bytes: int = 64 << 20
    allow_policy: list[str] = []
    tokens: bool = False
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
        """Everything that environments need: resources and an agent for each, and one model for all.

        With `resources_only` there is no model and no agent; `resources` is the URL of resources that run elsewhere.
        """
        plan = cls(**options)
        given = dict(settings or {})
        of_model = {key[6:]: given.pop(key) for key in list(given) if key.startswith("model.")}
        names: set[str] = set()
        for which in environments:
            name = _instance(which, names)
            if resources is None:
                kind: Kind = "resources_servers"
                plan.servers.append(
                    Server(name=name, kind=kind, implementation=name, environment=which, settings=given)
                )
            if not resources_only:
                agent = f"{name}_simple_agent"
                plan.servers.append(
                    Server(
                        name=agent,
                        kind="responses_api_agents",
                        implementation="simple_agent",
                        environment=which,
                        settings=given,
                        resources=resources,
                        model="policy_model",
                    )
                )
        if not resources_only:
            spec = {"spec": model or "local", "settings": of_model} if of_model else model or "local"
            kind = "responses_api_models"
            plan.servers.append(Server(name="policy_model", kind=kind, implementation="openai_model", spec=spec))
        for server in plan.servers:
            server.host = plan.host
        return plan

    def token(self) -> str | None:
        """The token that clients must show. Beyond loopback there must be one."""
        found = look_up_key(self.token_env) or None
        hosts = {self.host, *(server.host for server in self.servers)}
        if found is None and not hosts <= set(LOOPBACK):
            raise UserError(
                f"listening on {min(hosts - set(LOOPBACK))} needs a token", f"Set {self.token_env} in the environment"
            )
        return found


def _instance(which: str, taken: set[str]) -> str:
    """A name for an environment's servers: its own, without the folder it was found in."""
    base = which.rstrip("/").rsplit("/", 1)[-1].replace(":", "_")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name
