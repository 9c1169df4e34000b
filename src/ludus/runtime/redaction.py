"""Settings as plain JSON values, the same in every process and without keys: what a run is known by, and a verifier."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from ludus.runtime.encoding import encode
from ludus.runtime.urls import shown_url

_URL = re.compile(r"([a-z_]+:)?https?://\S+", re.IGNORECASE)
_KEY = re.compile(r"api[-_]?key$|(^|[-_])(token|secret|password|authorization)$", re.IGNORECASE)
_KEYS = ("headers", "env")  # of which any value may be one


def plain(settings: BaseModel) -> dict[str, Any]:
    """Settings as JSON has them, however deep, with two exceptions.

    A set becomes a sorted list: the order in which Python lists it changes every time. What may be a key is masked.
    """
    dumped: dict[str, Any] = masked(_sorted(settings, settings.model_dump(mode="json")))
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


def masked(value: Any) -> Any:
    """A value without what may be a key: in `headers` and `env`, in the query of a URL, or by its name."""
    if isinstance(value, dict):
        return {name: _masked_field(str(name), part) for name, part in value.items()}
    if isinstance(value, list):
        return [masked(part) for part in value]
    return shown_url(value) if isinstance(value, str) and _URL.fullmatch(value) else value


def _masked_field(name: str, value: Any) -> Any:
    if name in _KEYS and isinstance(value, dict):
        return dict.fromkeys(value, "***")
    return "***" if isinstance(value, str) and value and _KEY.search(name) else masked(value)
