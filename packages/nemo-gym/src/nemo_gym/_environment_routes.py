"""Which environment server fronts an agent, and the record of what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus_nemo_gym.servers import environment_servers, fronted_agents
from ludus_nemo_gym.trees import plain
from pydantic import BaseModel

from nemo_gym._failed_rows import NG_FAILURE_CLASS_KEY, NG_TERMINAL_KEY
from nemo_gym.config_types import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError

_TASK_ID = "_ng_task_id"
#: Keys that the collector adds to a record, so that a result may not have them.
_RESERVED = ("ng_trajectory", "ng_model_call_capture", "ng_perf")


def environment_servers_by_agent(config: Any) -> dict[str, list[str]]:
    """The environment servers in front of each agent, in the order of the configuration.

    A server fronts the agents that its fields name.
    """
    by_agent: dict[str, list[str]] = {}
    for server in environment_servers(plain(config)):
        for agent in fronted_agents(server.block):
            by_agent.setdefault(agent, []).append(server.name)
    return by_agent


def environment_server_for_agent(servers_by_agent: Mapping[str, Any], agent: str) -> str:
    """The one environment server in front of an agent."""
    servers = list(servers_by_agent.get(agent) or ())
    if not servers:
        hint = f"Add a block with environment_servers.legacy_agent.agent_server.name: {agent}"
        raise AgentWithoutEnvironmentServerError(f"no environment server fronts the agent {agent}. {hint}")
    if len(servers) > 1:
        names = ", ".join(servers)
        raise AmbiguousEnvironmentServerError(f"several environment servers front the agent {agent}: {names}. Keep one")
    return str(servers[0])


def episode_record(answer: Any) -> dict[str, Any]:
    """The record of an environment server's answer `{episode_id, task_id, result | failure}`.

    A result is the record itself. A failure becomes a row of the file of failures, without a reward.
    """
    answer = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else answer
    task_id, result, failure = answer.get("task_id"), answer.get("result"), answer.get("failure")
    if isinstance(failure, Mapping):
        optional = {"_ng_failure_stage": "stage", "_ng_failure_partial_response": "partial_response"}
        return {
            _TASK_ID: task_id,
            NG_FAILURE_CLASS_KEY: "environment_server_failed",
            NG_TERMINAL_KEY: bool(failure.get("terminal")),
            "_ng_failure_message": failure.get("failure_reason"),
            **{key: failure[field] for key, field in optional.items() if failure.get(field) is not None},
        }
    if not isinstance(result, Mapping):
        raise ValueError("an environment server answered without result and without failure")
    reserved = [key for key in result if str(key).startswith("_ng_") or key in _RESERVED]
    if reserved:
        raise ValueError(f"the result of an environment server has the collector's keys: {', '.join(reserved)}")
    return {**result, _TASK_ID: task_id}
