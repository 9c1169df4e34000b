"""Captures the calls of a model server whose paths name a rollout."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from nemo_gym._asgi import AsgiApp, BufferedReply, Message, Receive, Send, header, read_body, replay
from nemo_gym._model_calls import CaptureStore, ModelCallCaptureConfig, ModelCallRecord
from nemo_gym._model_streams import dialect_of, json_object
from nemo_gym.config_types import ModelServerRef
from nemo_gym.rollout_correlation import RolloutContextMiddleware, current_rollout_id

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("nemo_gym")

_SESSION_HEADER = b"x-session-id"


class _CaptureMiddleware:
    """Stores every model call of a rollout before its answer is sent. Other requests pass unchanged."""

    def __init__(self, app: AsgiApp, store: CaptureStore, server_name: str | None = None) -> None:
        self.app = app
        self.store = store
        self.server_name = server_name
        self._capturing = RolloutContextMiddleware(self._capture)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._capturing(scope, receive, send)

    async def _capture(self, scope: Message, receive: Receive, send: Send) -> None:
        rollout_id, dialect = current_rollout_id(), dialect_of(scope)
        if rollout_id is None or dialect is None:
            await self.app(scope, receive, send)
            return
        body = await read_body(receive)
        record = ModelCallRecord(
            rollout_id=rollout_id,
            model_ref=self._model_ref(),
            dialect=dialect,
            client_session_id=header(scope, _SESSION_HEADER),
            request=json_object(body),
            started_at=time.time(),
        )
        began = time.perf_counter()
        reply = BufferedReply()
        try:
            await self.app(scope, replay(body, receive), reply)
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            record.status = "failed"
            record.error_category = "cancelled" if cancelled else type(error).__name__
            self._store(_ended(record, began))
            raise
        answer = json_object(reply.body)
        failed = reply.status >= 400
        record.status, record.status_code = "failed" if failed else "completed", reply.status
        record.error_category = f"http_{reply.status}" if failed else None
        record.response, record.response_id = answer, answer.get("id")
        await asyncio.to_thread(self._store, _ended(record, began))
        await reply.pass_on(send)

    def _model_ref(self) -> ModelServerRef | None:
        return ModelServerRef(type="responses_api_models", name=self.server_name) if self.server_name else None

    def _store(self, record: ModelCallRecord) -> None:
        """Store a call. A disk that fails loses the record, never the model's answer."""
        try:
            self.store.append(record)
        except (OSError, ValueError) as error:
            log.warning("model call %s of rollout %s is not stored: %s", record.model_call_id, record.rollout_id, error)


def _ended(record: ModelCallRecord, began: float) -> ModelCallRecord:
    record.completed_at = time.time()
    record.duration_ms = (time.perf_counter() - began) * 1000
    return record


def install_model_call_capture(
    app: FastAPI, config: Any = None, *, server_name: str | None = None, store: CaptureStore | None = None
) -> CaptureStore | None:
    """Capture the model calls of an application, if `config` says so, and return where they are stored.

    `config` is a `ModelCallCaptureConfig` or the configuration of a run. A `store` captures whatever `config` says.
    """
    if store is None:
        capture = config if isinstance(config, ModelCallCaptureConfig) else ModelCallCaptureConfig.from_config(config)
        if not capture.enabled:
            return None
        store = CaptureStore(capture.capture_dir)
    middleware: Any = _CaptureMiddleware
    app.add_middleware(middleware, store=store, server_name=server_name)
    return store
