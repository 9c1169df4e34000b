"""The lists of models that clients ask a model server for. A server has one model, and answers to any name of it."""

from __future__ import annotations

from typing import Any

from ludus.dialects.errors import Dialect

_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]
_LONG_AGO = "1970-01-01T00:00:00Z"


def model_entry(dialect: Dialect, name: str) -> dict[str, Any]:
    """One model, as `GET /v1/models/NAME` describes it."""
    if dialect == "messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": _LONG_AGO}
    if dialect == "gemini":
        return {"name": f"models/{name}", "version": "1", "displayName": name, "supportedGenerationMethods": _METHODS}
    return {"id": name, "object": "model", "created": 0, "owned_by": "ludus"}


def model_list(dialect: Dialect, name: str) -> dict[str, Any]:
    """The list of a server's one model."""
    entry = model_entry(dialect, name)
    if dialect == "messages":
        return {"data": [entry], "has_more": False, "first_id": name, "last_id": name}
    if dialect == "gemini":
        return {"models": [entry]}
    return {"object": "list", "data": [entry]}
