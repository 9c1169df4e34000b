"""The one place that decides whether an environment runs in this process or on servers."""

from __future__ import annotations

from ludus.environment import Environment
from ludus.remote.agent import remote_agent
from ludus.remote.resources import remote_resources


def on_servers(
    environment: Environment, *, resources: str | None = None, agent: str | None = None, token_env: str = "LUDUS_TOKEN"
) -> Environment:
    """The environment with its rollouts on the agent server `agent`, or its resources on the server `resources`."""
    if agent is not None:
        return remote_agent(environment, agent, token_env)
    return remote_resources(environment, resources, token_env) if resources is not None else environment
