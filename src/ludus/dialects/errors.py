"""Errors as each dialect writes them: the envelope of a reply, and the event in the middle of a stream.

SDKs build their exceptions from these. A kind of ours (`timeout`, `refused`) is the `code` of an OpenAI error.
"""

from __future__ import annotations

from typing import Any, Literal

Dialect = Literal["responses", "chat", "messages", "gemini"]

_OPENAI_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}
_MESSAGES_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GEMINI_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

#: The code of a prompt that exceeds the model's context.
CONTEXT_LENGTH = "context_length_exceeded"
#: How each provider says so. Programs look for these words, and shorten their conversation.
_TOO_LONG: dict[Dialect, str] = {
    "responses": "Your input exceeds the context window of this model",
    "chat": "Your input exceeds the context window of this model",
    "messages": "prompt is too long",
    "gemini": "The input token count exceeds the maximum number of tokens allowed",
}


def error_body(
    dialect: Dialect, status: int, message: str, *, kind: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """The body of an error reply. `param` is the field of the request that is wrong."""
    if kind == CONTEXT_LENGTH:
        message = f"{_TOO_LONG[dialect]}: {message}"
    if dialect == "messages":
        default = "api_error" if status >= 500 else "invalid_request_error"
        return {"type": "error", "error": {"type": _MESSAGES_TYPES.get(status, default), "message": message}}
    if dialect == "gemini":
        default = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
        return {"error": {"code": status, "message": message, "status": _GEMINI_STATUSES.get(status, default)}}
    return {
        "error": {
            "message": message,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "param": param,
            "code": kind or _OPENAI_CODES.get(status),
        }
    }


def error_event(dialect: Dialect, message: str, number: int, *, kind: str | None = None) -> dict[str, Any]:
    """The event that ends a stream in which the server failed. `number` counts the events before it."""
    if dialect == "responses":
        return {"type": "error", "code": kind, "message": message, "param": None, "sequence_number": number}
    return error_body(dialect, 500, message, kind=kind)
