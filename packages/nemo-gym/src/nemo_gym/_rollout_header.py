"""Names the rollout of a request to a server of this machine, so that Ludus knows which rollout a model call is of."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ludus.remote.http import ROLLOUT
from nemo_gym.rollout_correlation import current_rollout_id

_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


def rollout_headers(url: str) -> dict[str, str]:
    """The header with the rollout that the caller works for. Other machines get none."""
    rollout = current_rollout_id()
    return {ROLLOUT: rollout} if rollout is not None and urlsplit(url).hostname in _THIS_MACHINE else {}


def naming_rollouts() -> Any:
    """A `TraceConfig` of aiohttp that adds the header to every request of a client."""
    import aiohttp

    async def add(session: Any, context: Any, request: Any) -> None:
        request.headers.update(rollout_headers(str(request.url)))

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(add)
    return trace
