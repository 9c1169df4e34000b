"""Where an environment runs: here, or on the servers whose URLs are given. The one place that decides."""

from __future__ import annotations

from ludus.environment import Environment
from ludus.remote.agent import remote_agent
from ludus.remote.resources import remote_resources


def on_servers(
    environment: Environment, *, resources: str | None = None, agent: str | None = None, token_env: str = "LUDUS_TOKEN"
) -> Environment:
    """The environment with its resources on a server, or with its whole rollouts played by an agent server."""
    if agent is not None:
        return remote_agent(environment, agent, token_env)
    return remote_resources(environment, resources, token_env) if resources is not None else environment
