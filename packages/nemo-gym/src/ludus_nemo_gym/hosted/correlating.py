"""Which rollout a request to a hosted server belongs to: an id in a header, known to everything that it calls."""

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
        """Answer one request within the context of its rollout."""
        named = next((value for name, value in scope.get("headers", ()) if name == _HEADER), None)
        if named is None:
            await self._app(scope, receive, send)
            return
        from nemo_gym.rollout_correlation import rollout_context

        with rollout_context(str(named, "latin-1")):
            await self._app(scope, receive, send)
