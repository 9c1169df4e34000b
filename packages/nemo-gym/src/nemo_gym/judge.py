"""Calls of a judge, and what becomes of a rollout whose judge failed.

A failed judge is no reward: the reply names the failure (`_ng_failure_class`), and Ludus records a failed rollout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym._handlers import call_handler, resolved_signature
from nemo_gym.server_utils import get_response_json, raise_for_status

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

#: The fields of a request that hold what is judged: the second one in requests of sessions whose ids the caller chose.
_JUDGED = ("response", "verification_input")
#: The characters of a reason that a reply keeps.
_REASON = 2000


class JudgeError(Exception):
    """The call of a judge failed."""


async def reraise_judge_errors(awaitable: Awaitable[T]) -> T:
    """The result of an awaitable. Whatever it raises becomes a `JudgeError`."""
    try:
        return await awaitable
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {error}") from error


async def call_judge(server_client: Any, *, server_name: str, url_path: str, json: Any, response_model: type[M]) -> M:
    """Ask a judge and check its reply. Any failure is a `JudgeError`."""

    async def ask() -> M:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    return await reraise_judge_errors(ask())


def judge_failsafe(verify_fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """`verify` with a reply for a `JudgeError`: the request and the failure. FastAPI sees the signature of `verify`."""

    @wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        try:
            return await call_handler(verify_fn, *args, **kwargs)
        except JudgeError as error:
            from starlette.responses import JSONResponse

            return JSONResponse(_failed(_body(args, kwargs), str(error)))

    verify.__signature__ = resolved_signature(verify_fn)  # type: ignore[attr-defined]
    return verify


def _failed(body: Any, why: str) -> dict[str, Any]:
    """The reply for a rollout whose judge failed."""
    row = body.model_dump(mode="json")
    config = row.get("instance_config")
    return {
        **row,
        "instance_config": {**(config if isinstance(config, dict) else {}), "mask_sample": True},
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "failure_reason": why[:_REASON],
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": why,
    }


def _body(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The body of a request: the argument with what is judged. A test may pass a double of it, and of the request."""
    bodies = [value for value in (*args, *kwargs.values()) if any(hasattr(value, name) for name in _JUDGED)]
    body = next((value for value in bodies if isinstance(value, BaseModel)), bodies[0] if bodies else None)
    if body is None:
        raise RuntimeError("verify was called without the body of a request: pass one with a `response`")
    return body
