"""The server behind served resources that stand in for one, such as a server that was written for NeMo Gym.

Its own metrics and its own word on judging again take the place of ours.
"""

from __future__ import annotations

from typing import Any

from ludus.environment import Environment
from ludus.errors import Failure
from ludus.http.messages import Incoming, Reply
from ludus.remote.http import Client
from ludus.remote.resources import RemoteResources
from ludus.runtime.boundary import step
from ludus.serve.aggregate import aggregate_metrics

#: How long a server may compute the metrics of a collection.
METRICS_SECONDS = 600.0
#: How long a server may take to say whether it can judge again.
MODE_SECONDS = 30.0

#: What servers say about judging a stored rollout without its session.
STATELESS, UNSUPPORTED, UNKNOWN = MODES = ("stateless", "unsupported", "unknown")


class MetricsRoute:
    """The route `/aggregate_metrics`: the metrics of the server behind, or ours if there is none or it has none."""

    def __init__(self, environment: Environment, shared: Any) -> None:
        self._behind = server_behind(environment, shared)

    async def __call__(self, incoming: Incoming) -> Reply:
        """The metrics of the rollouts in the request."""
        if self._behind is None:
            return await aggregate_metrics(incoming)
        reply = await step("verify", METRICS_SECONDS, self._behind.post("/aggregate_metrics", incoming.body), "metrics")
        return await aggregate_metrics(incoming) if reply.status in (404, 405) else Reply(reply.body, reply.status)


def server_behind(environment: Environment, shared: Any) -> Client | None:
    """The client of the server that an environment's resources stand in for; None for resources of this process."""
    if not issubclass(environment.resources, RemoteResources):
        return None
    client: Client = shared.client
    return client


async def reverify_mode(behind: Client | None) -> str:
    """Whether stored rollouts can be judged without their sessions. Resources of this process can, by replay."""
    if behind is None:
        return STATELESS
    try:
        reply = await step("verify", MODE_SECONDS, behind.get("/reverify_mode"), "/reverify_mode")
        mode = reply.json() if reply.status == 200 else UNKNOWN
    except Failure:
        return UNKNOWN
    return mode if mode in MODES else UNKNOWN
