"""The book of an agent's sessions: each is opened once and closed once, however often a caller repeats a request.

Calls for one id run one after another. A closed session leaves a receipt, which answers a repeated close and refuses a
late open until it expires.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nemo_gym._agent_session_bodies import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSessionSetupError,
    AgentSessionState,
)
from nemo_gym._simple_server import fastapi
from nemo_gym.episode_types import EpisodeId

OpenHook = Callable[[AgentSeedSessionRequest], Awaitable[AgentSessionState]]
CloseHook = Callable[[AgentSessionState], Awaitable[AgentCloseSessionResponse]]


@dataclass
class _Record:
    """A session that holds something. It is `usable` until its first close, unless its setup failed."""

    request: AgentSeedSessionRequest
    state: AgentSessionState
    usable: bool = True


@dataclass(frozen=True)
class _Receipt:
    """The answer of a close, repeated until `expires`."""

    episode_id: EpisodeId
    response: AgentCloseSessionResponse
    expires: float


class AgentSessions:
    """The sessions of one agent. A refusal is FastAPI's `HTTPException` with status 409."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._receipts: dict[str, _Receipt] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    def require(self, session_id: str | None) -> AgentSessionState:
        """The state of an open session."""
        record = self._records.get(session_id) if session_id is not None else None
        if record is None or not record.usable:
            raise _conflict(f"there is no open agent session {session_id!r}: POST /v1/agent_sessions opens one")
        return record.state

    async def open(self, body: AgentSeedSessionRequest, cookie: str | None, hook: OpenHook) -> None:
        """Open a session, unless the same request has opened it."""
        session_id = body.agent_session_id
        async with self._alone(session_id):
            self._check_cookie(session_id, cookie)
            self._drop_expired()
            record = self._records.get(session_id)
            if session_id in self._receipts or (record is not None and not record.usable):
                raise _conflict(f"agent session {session_id!r} is closed or closing: choose a new id")
            if record is not None:
                if record.request != body:
                    raise _conflict(f"agent session {session_id!r} was opened by a different request: choose a new id")
                return
            if cookie is not None:
                raise _conflict(f"the agent has lost session {session_id!r}: choose a new id and drop the cookie")
            kept = body.model_copy(deep=True)
            try:
                self._records[session_id] = _Record(kept, await hook(body.model_copy(deep=True)))
            except AgentSessionSetupError as failed:
                self._records[session_id] = _Record(kept, failed.state, usable=False)
                raise failed.error from failed

    async def close(
        self, body: AgentCloseSessionRequest, cookie: str | None, hook: CloseHook, window: float
    ) -> AgentCloseSessionResponse:
        """Close a session, and keep the answer for `window` seconds. If the hook raises, the close can be repeated."""
        session_id = body.agent_session_id
        async with self._alone(session_id):
            self._check_cookie(session_id, cookie)
            self._drop_expired()
            record, receipt = self._records.get(session_id), self._receipts.get(session_id)
            episode = record.request.episode_id if record else receipt.episode_id if receipt else None
            if episode is not None and episode != body.episode_id:
                raise _conflict(f"agent session {session_id!r} belongs to another episode: {episode.capture_key}")
            if receipt is not None:
                return receipt.response
            if record is not None:
                record.usable = False
                response = await hook(record.state)
                del self._records[session_id]
            elif cookie is not None:
                raise _conflict(f"agent session {session_id!r} was closed too long ago to repeat its answer")
            else:
                response = AgentCloseSessionResponse(agent_session_id=session_id)
            self._receipts[session_id] = _Receipt(body.episode_id, response, time.monotonic() + window)
            return response

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[None]:
        """Wait until no other call for this id runs."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        self._users[session_id] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[session_id] -= 1
            if not self._users[session_id]:
                del self._users[session_id], self._locks[session_id]

    def _check_cookie(self, session_id: str, cookie: str | None) -> None:
        if cookie is not None and cookie != session_id:
            raise _conflict(f"the cookie belongs to agent session {cookie!r}, not to {session_id!r}: use one jar each")

    def _drop_expired(self) -> None:
        now = time.monotonic()
        for session_id, receipt in list(self._receipts.items()):
            if receipt.expires > now:
                return  # receipts lie in the order of their expiry
            del self._receipts[session_id]


def _conflict(detail: str) -> Exception:
    error: Exception = fastapi().HTTPException(status_code=409, detail=detail)
    return error
