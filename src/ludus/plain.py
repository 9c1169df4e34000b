"""Settings as plain JSON values, the same in every process and without keys: what a run is known by, and a verifier."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from ludus.encoding import encode
from ludus.urls import shown_url

_URL = re.compile(r"https?://\S+")


def plain(settings: BaseModel) -> dict[str, Any]:
    """Settings as JSON has them, however deep, with two exceptions.

    A set becomes a sorted list: the order in which Python lists it changes every time. What may be a key, which is a
    value of `headers` or of the query of a URL, is masked.
    """
    dumped: dict[str, Any] = _masked(_sorted(settings, settings.model_dump(mode="json")))
    return dumped


def _sorted(value: Any, dumped: Any) -> Any:
    """What a value was dumped as, with every list in it sorted that was a set."""
    if isinstance(dumped, dict):
        if not isinstance(value, dict):  # a model or a dataclass; a field that is dumped under another name stays
            value = {name: getattr(value, name, None) for name in dumped}
        if len(value) != len(dumped):
            return dumped
        return {name: _sorted(part, dumped[name]) for name, part in zip(dumped, value.values(), strict=True)}
    if isinstance(dumped, list) and isinstance(value, (list, tuple, set, frozenset)) and len(value) == len(dumped):
        items = [_sorted(*pair) for pair in zip(value, dumped, strict=True)]
        return sorted(items, key=encode) if isinstance(value, (set, frozenset)) else items
    return dumped


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        headers = value.get("headers")
        masked = {"headers": dict.fromkeys(headers, "***")} if isinstance(headers, dict) else {}
        return {name: _masked(part) for name, part in value.items()} | masked
    if isinstance(value, list):
        return [_masked(part) for part in value]
    return shown_url(value) if isinstance(value, str) and _URL.fullmatch(value) else value
