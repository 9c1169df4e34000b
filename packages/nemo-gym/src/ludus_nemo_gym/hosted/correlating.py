"""Which rollout a request to a hosted server belongs to: an id in a header, known to everything that it calls."""

from __future__ import annotations

from typing import Any

from ludus.http.messages import Receive, Scope, Send
from ludus.remote.http import ROLLOUT

_HEADER = ROLLOUT.encode()


class Correlating:
    """An ASGI application around another one. The calls that a handler makes name the rollout of its request."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within the context of its rollout."""
        named = next((value for name, value in scope.get("headers", ()) if name == _HEADER), None)
        if named is None:
            await self._app(scope, receive, send)
            return
        from nemo_gym.rollout_correlation import rollout_context

        with rollout_context(str(named, "latin-1")):
            await self._app(scope, receive, send)
