"""Starts a launch: translates it into the plan that `ludus.serve` runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.folder import locate, read_file
from ludus.serve.plan import Plan, Server
from ludus_nemo_gym.hosted.wired import environment_text
from ludus_nemo_gym.launch import AgentPart, HostedPart, Instance, Launch, ModelPart, RemotePart, ResourcesPart
from ludus_nemo_gym.trees import Tree

FOREIGN, FOREIGN_GAME = (Path(__file__).parent / name for name in ("foreign", "foreign_game"))


def start(launch: Launch) -> None:
    """Start everything and serve it until Ctrl-C."""
    from ludus.cli.serve import run_plan

    os.environ.update(launch.secrets)
    run_plan(plan_of(launch))


def plan_of(launch: Launch) -> Plan:
    """The plan of a launch. It names the environment variables of API keys, which `start` sets."""
    planning = _Planning(launch)
    return Plan(
        servers=[server for instance in launch.servers if (server := planning.server(instance)) is not None],
        host=launch.head_host,
        head_port=launch.head_port,
        head_block="head_server",
        workers=max((instance.num_workers for instance in launch.servers), default=1),
        tokens=any(isinstance(instance.part, ModelPart) and instance.part.tokens for instance in launch.servers),
    )


class _Planning:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.instances = {instance.name: instance for instance in launch.servers}
        self._taken: set[int] = set()

    def server(self, instance: Instance) -> Server | None:
        """The server of an instance; None for resources and agents that already run elsewhere."""
        part = instance.part
        if isinstance(part, ModelPart):
            return self._server(instance, spec=part.block)
        if isinstance(part, ResourcesPart):
            return self._server(instance, environment=_environment(part), settings=_settings(part))
        if isinstance(part, AgentPart):
            return self._agent(instance, part)
        if instance.kind == "responses_api_models":
            return self._server(instance, spec={"type": "openai", "base_url": f"{part.url}/v1", "model": instance.name})
        self.launch.notes.append(
            f"{instance.name} already runs at {part.url}: it is not started, and the head does not list it"
        )
        return None

    def _agent(self, instance: Instance, part: AgentPart) -> Server:
        """An agent server plays the environment of its resources, with the agent that the environment declares."""
        own_code = part.type == "nemo_gym"
        played = self.instances[part.resources].part if part.resources is not None else None
        remote = played.url if isinstance(played, RemotePart) else None
        foreign = FOREIGN_GAME if part.type == "gymnasium" else FOREIGN
        environment = getattr(played, "environment", None) or str(foreign)
        settings = _settings(played) if isinstance(played, ResourcesPart) else {}
        if isinstance(played, HostedPart):
            turns = played.turns if own_code else part.type == "gymnasium"
            environment = environment_text(environment, played.instance, turns=turns)
            declared = "simple"
        else:
            declared = read_file(locate(environment)[0]).agent.get("type", "simple")
        replaceable = own_code or isinstance(played, HostedPart) or environment == str(FOREIGN)
        replaceable = replaceable or (declared, part.type) == ("simple", "single_turn")
        if declared == part.type or replaceable:
            settings |= {"agent.type": part.type} if declared != part.type else {}
            settings |= {f"agent.{key}": value for key, value in part.settings.items()}
        else:
            note = f"{instance.name}: {part.resources} is played by its own agent, {declared}, not by {part.type}"
            self.launch.notes.append(note)
        settings |= {f"limits.{key}": value for key, value in part.limits.items()}
        fields = {"environment": environment, "settings": settings, "resources": remote, "model": part.model}
        return self._server(instance, **fields)

    def _server(self, instance: Instance, **fields: Any) -> Server:
        names = {"name": instance.name, "kind": instance.kind, "implementation": instance.implementation}
        port = instance.port if instance.port is not None else self._free_port(instance.host)
        names["block"] = f"{instance.name}.{instance.kind}.{instance.implementation}"
        return Server.model_validate({**names, "host": instance.host, "port": port, **fields})

    def _free_port(self, host: str) -> int:
        """A free port of the configured range; 0, which means any port, if there is no range."""
        ports = self.launch.ports
        for port in range(ports[0], ports[1] + 1) if ports is not None else ():
            if port not in self._taken and _is_free(host, port):
                self._taken.add(port)
                return port
        if ports is not None:
            raise UserError(
                f"no port from {ports[0]} to {ports[1]} is free",
                "Choose another range: ++port_range_low=PORT ++port_range_high=PORT",
            )
        return 0


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError:
            return False
    return True


def _environment(part: ResourcesPart) -> str:
    if isinstance(part, HostedPart):
        return environment_text(part.environment, part.instance, turns=part.turns)
    return part.environment


def _settings(part: ResourcesPart) -> Tree:
    return {f"resources.{key}": value for key, value in {**part.settings, **part.secret_settings}.items()}
