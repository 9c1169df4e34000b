"""Which rollout a request belongs to: an id in front of its path, known to everything that the request calls."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel

from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

_ID = re.compile(r"[A-Za-z0-9._-]+")
_PREFIX = re.compile(rf"/{ROLLOUT_PATH_PREFIX}/({_ID.pattern})(?:/{TOKEN_CAPTURE_PATH_SEGMENT})?(?=/|\Z)")

_current: ContextVar[str | None] = ContextVar("nemo_gym_rollout_id", default=None)


def current_rollout_id() -> str | None:
    """The id of the rollout whose request is being answered."""
    return _current.get()


def rollout_prefix_of(path: str) -> str:
    """The part of a path that names its rollout; empty if there is none."""
    match = _PREFIX.match(path)
    return match[0] if match is not None else ""


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Make `rollout_id` the current id within the block."""
    token = _current.set(rollout_id)
    try:
        yield
    finally:
        _current.reset(token)


class RolloutContextMiddleware:
    """Removes `/ng-rollout/ID` from the front of a path and makes ID the current rollout id of that request.

    The segment `training-token-capture` after the id is removed, too.
    """

    def __init__(self, app: _App) -> None:
        self.app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer a request. Paths without an id pass unchanged."""
        match = _PREFIX.match(scope.get("path") or "") if scope["type"] in ("http", "websocket") else None
        if match is None:
            await self.app(scope, receive, send)
            return
        inner = {**scope, "path": scope["path"][match.end() :] or "/"}
        raw = scope.get("raw_path")
        if isinstance(raw, bytes):
            encoded = _PREFIX.match(raw.decode("latin-1"))
            inner["raw_path"] = (raw[encoded.end() :] or b"/") if encoded else inner["path"].encode()
        with rollout_context(match[1]):
            await self.app(inner, receive, send)


def maybe_rollout_id_from_run_body(body: Any) -> str | None:
    """The rollout's id in a body of `/run`, which is a mapping or a model.

    It is `_ng_rollout_id` (`capture_rollout_id` of a model), else TASK-ROLLOUT, with `-aN` for attempt N > 0; None
    without both. `ValueError` if `_ng_rollout_id` has other characters than letters, digits, `.`, `_` and `-`.
    """
    rollout_id = _field(body, "_ng_rollout_id")
    task, rollout, attempt = (_field(body, f"_ng_{name}_index") for name in ("task", "rollout", "attempt"))
    if rollout_id is None:
        if task is None or rollout is None:
            return None
        rollout_id = f"{task}-{rollout}"
    elif not isinstance(rollout_id, str) or _ID.fullmatch(rollout_id) is None:
        raise ValueError(f"_ng_rollout_id {rollout_id!r} may hold only letters, digits, '.', '_' and '-'")
    return f"{rollout_id}-a{attempt}" if attempt else rollout_id


def _field(body: Any, key: str) -> Any:
    """The value of a key: in a mapping, in a model's extras, or in the field with that alias."""
    if isinstance(body, Mapping):
        return body.get(key)
    if not isinstance(body, BaseModel):
        return None
    names = (name for name, field in type(body).model_fields.items() if field.alias == key)
    value = next((getattr(body, name, None) for name in names), None)
    return value if value is not None else (body.model_extra or {}).get(key)
