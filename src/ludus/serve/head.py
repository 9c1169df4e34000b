"""The head server: lists the other servers, for clients that know only one address. It never serves a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Reply
from ludus.serve.plan import Plan, Server


class HeadApp(App):
    """Lists the servers of a plan. `progress` says which parts have not started yet."""

    def __init__(self, plan: Plan, progress: Callable[[], dict[str, Any]], *, guard: Guard | None = None) -> None:
        super().__init__(guard)
        self._plan = plan
        self._progress = progress
        self.routes |= {
            ("GET", "/global_config_dict_yaml"): self.global_config,
            ("GET", "/server_instances"): self.server_instances,
        }

    async def health(self, incoming: Incoming) -> Reply:
        """Whether all servers are ready, and what has not started yet."""
        return Reply.of({**self._progress(), **self.state()})

    async def global_config(self, incoming: Incoming) -> Reply:
        """The configuration as YAML in a JSON string."""
        return Reply.of(yaml.safe_dump(configuration(self._plan), sort_keys=False))

    async def server_instances(self, incoming: Incoming) -> Reply:
        """The servers, one object each."""
        return Reply.of([_instance(server) for server in self._plan.servers])


def configuration(plan: Plan) -> dict[str, Any]:
    """A plan in the three levels of NeMo Gym's configuration: instance, kind, implementation."""
    config: dict[str, Any] = {"head_server": {"host": plan.host, "port": plan.head_port}}
    config["default_host"] = plan.host
    for server in plan.servers:
        config[server.name] = {server.kind: {server.implementation: _entry(server, plan)}}
    return config


def _entry(server: Server, plan: Plan) -> dict[str, Any]:
    entry: dict[str, Any] = {"entrypoint": "app.py", "host": server.host, "port": server.port}
    if server.kind == "responses_api_agents":
        resources = [other for other in plan.servers if other.kind == "resources_servers"]
        names = [other.name for other in resources if other.environment == server.environment]
        if names:
            entry["resources_server"] = {"type": "resources_servers", "name": names[0]}
        entry["model_server"] = {"type": "responses_api_models", "name": server.model}
    return entry


def _instance(server: Server) -> dict[str, Any]:
    return {
        "name": server.name,
        "process_name": server.name,
        "server_type": server.kind,
        "implementation": server.implementation,
        "environment": server.environment,
        "host": server.host,
        "port": server.port,
        "url": server.url,
    }
