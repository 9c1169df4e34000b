"""The statistics of an agent: the request to its server, and the figures that Ludus adds."""

from __future__ import annotations

from collections.abc import Container, Iterable
from statistics import fmean
from typing import Any

from ludus.runtime.encoding import encode
from ludus_nemo_gym.agent_servers import agent_of
from ludus_nemo_gym.materialize import TASK

Row = dict[str, Any]

#: The fields that NeMo Gym's collector does not send to `/aggregate_metrics` either: they are long.
_LONG = {"response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "ng_trajectory"}
#: The fields of a response that it does send.
_OF_RESPONSE = ("usage", "incomplete_details")


class Numbers:
    """The numbers of rollouts for each agent: Ludus's own statistics need nothing else."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.by_agent: dict[str, list[Row]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Keep the numbers of a rollout."""
        numbers = {key: value for key, value in row.items() if isinstance(value, (bool, int, float))}
        short = {**numbers, "response": {"usage": _of_response(row).get("usage")}}
        self.by_agent.setdefault(agent_of(row), []).append(short)


class RequestBodies:
    """The body of the request to `/aggregate_metrics` of each agent in `agents`.

    A server may compute statistics of any field, such as the extracted answer. The rollouts are stored encoded, which
    takes less memory than objects, and without their long fields.
    """

    def __init__(self, agents: Container[str]) -> None:
        self._agents = agents
        self._rows: dict[str, bytearray] = {}

    def add(self, row: Row) -> None:
        """Add a rollout to the body of its agent."""
        name = agent_of(row)
        if name in self._agents:
            short = {key: value for key, value in row.items() if key not in _LONG}
            response = {key: value for key, value in _of_response(row).items() if key in _OF_RESPONSE}
            body = self._rows.setdefault(name, bytearray())
            body += b"," if body else b'{"verify_responses":['
            body += encode({**short, "response": response} if response else short)

    def take(self, name: str) -> bytes:
        """Remove and return the body of an agent."""
        return bytes(self._rows.pop(name, b'{"verify_responses":[') + b"]}")


def agent_metrics(name: str, rows: list[Row], aggregated: Row) -> Row:
    """An agent's entry in `X_aggregate_metrics.json`. `pass_metrics` are added if its server computed no pass@k."""
    entry = {"agent_ref": {"name": name}, **aggregated}
    key_metrics = entry.get("key_metrics")
    if isinstance(key_metrics, dict) and not any(key.startswith("pass@") for key in key_metrics):
        passes = pass_metrics(rows)
        entry["key_metrics"] = {**key_metrics, **passes}
        if isinstance(everything := entry.get("agent_metrics"), dict):
            entry["agent_metrics"] = {**everything, **passes}
    return entry


def pass_metrics(rows: list[Row]) -> dict[str, float]:
    """pass@1 and pass@k of the reward in percent, where k is the number of rollouts that every task has.

    As in NeMo Gym, a reward between 0 and 1 counts as that part of a success, and pass@k takes the best of a task's
    first k rollouts. There is no pass@k if a reward is outside 0 to 1: a loss of -1 is not a negative success, and an
    agent's server does not say from which reward on a rollout passes.
    """
    tasks: dict[int, list[float]] = {}
    for row in rows:
        reward = row.get("reward")
        if isinstance(reward, (bool, int, float)):
            tasks.setdefault(row[TASK], []).append(float(reward))
    if not tasks or not all(0 <= reward <= 1 for rewards in tasks.values() for reward in rewards):
        return {}
    k = min(map(len, tasks.values()))
    single = 100 * fmean(fmean(rewards) for rewards in tasks.values())
    best = 100 * fmean(max(rewards[:k]) for rewards in tasks.values())
    return {f"pass@1[avg-of-{k}]/reward": single, "pass@1/reward": single} | (
        {f"pass@{k}/reward": best} if k > 1 else {}
    )


def _of_response(row: Row) -> Row:
    response = row.get("response")
    return response if isinstance(response, dict) else {}
