"""Signatures of request handlers as FastAPI reads them.

FastAPI looks the names of annotations up in the module of a handler. A module that imports FastAPI for type checkers
only, and a wrapper around another module's handler, need their classes put in place of the names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints

from nemo_gym._simple_server import fastapi


def resolved_signature(function: Callable[..., Any], names: dict[str, Any] | None = None) -> inspect.Signature:
    """The signature with classes in place of texts: FastAPI looks names up where the wrapper was defined.

    `names` adds names that the module of the function imports for type checkers only.
    """
    signature = inspect.signature(function)
    try:
        hints = get_type_hints(function, localns=names, include_extras=True)
    except Exception:  # a name that exists for type checkers only
        return signature
    parameters = [
        value.replace(annotation=hints.get(name, value.annotation)) for name, value in signature.parameters.items()
    ]
    return signature.replace(parameters=parameters, return_annotation=hints.get("return", signature.return_annotation))


async def call_handler(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a handler. A plain function runs in a thread, as FastAPI runs it; it may return an awaitable."""
    if inspect.iscoroutinefunction(handler):
        return await handler(*args, **kwargs)
    from starlette.concurrency import run_in_threadpool

    result = await run_in_threadpool(handler, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def with_request_type(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler whose signature has FastAPI's `Request` and `Response` in place of their names."""

    @wraps(handler)
    async def typed(*args: Any, **kwargs: Any) -> Any:
        return await handler(*args, **kwargs)

    names = {"Request": fastapi().Request, "Response": fastapi().Response}
    typed.__signature__ = resolved_signature(handler, names)  # type: ignore[attr-defined]
    return typed
