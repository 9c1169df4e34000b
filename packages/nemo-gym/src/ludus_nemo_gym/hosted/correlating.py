"""What a hosted server knows during a request: its configuration, and the rollout that a header names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ludus.http.messages import Receive, Scope, Send
from ludus.remote.http import ROLLOUT

_HEADER = ROLLOUT.encode()


class Correlating:
    """The application of a hosted server. The calls that a handler makes with `client` name the rollout of its
    request."""

    def __init__(self, app: Any, client: Any) -> None:
        self._app, self._client = app, client

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the start-up code of the application, and its shutdown code at the end of the block."""
        from nemo_gym._simple_server import lifespan

        async with self._client.kept_connections(), lifespan(self):
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within the context of its rollout, and with the configuration of its server."""
        from nemo_gym.global_config import configuration_context
        from nemo_gym.rollout_correlation import current_rollout_id, rollout_context

        named = next((value for name, value in scope.get("headers", ()) if name == _HEADER), None)
        rollout = str(named, "latin-1") if named is not None else current_rollout_id()
        with configuration_context(self._client.global_config_dict), rollout_context(rollout):
            await self._app(scope, receive, send)
