"""Settings as JSON values without keys, identical in every process: part of a run's identity and of a receipt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ludus.runtime.encoding import encode
from ludus.runtime.urls import shown_url

if TYPE_CHECKING:
    from pydantic import BaseModel

#: Replaces a value that may be a key.
HIDDEN = "***"

_URL = re.compile(r"([a-z_]+:)?https?://\S+", re.IGNORECASE)
_KEY = re.compile(r"api[-_]?key$|(^|[-_])(token|secret|password|authorization)$", re.IGNORECASE)
_MAPPINGS_WITH_KEYS = ("headers", "env")  # settings in which any value may be a key


def redacted_settings(settings: BaseModel) -> dict[str, Any]:
    """Settings as JSON values. Values that may be keys are masked.

    A set becomes a sorted list, since Python iterates over a set in a different order in each process.
    """
    dumped: dict[str, Any] = masked(_with_sorted_sets(settings, settings.model_dump(mode="json")))
    return dumped


def _with_sorted_sets(value: Any, dumped: Any) -> Any:
    """`dumped`, the JSON form of `value`, with former sets sorted."""
    if isinstance(dumped, dict):
        if not isinstance(value, dict):  # a model or a dataclass; a set in a field with an alias stays unsorted
            value = {name: getattr(value, name, None) for name in dumped}
        if len(value) != len(dumped):
            return dumped
        return {name: _with_sorted_sets(part, dumped[name]) for name, part in zip(dumped, value.values(), strict=True)}
    if isinstance(dumped, list) and isinstance(value, (list, tuple, set, frozenset)) and len(value) == len(dumped):
        items = [_with_sorted_sets(*pair) for pair in zip(value, dumped, strict=True)]
        return sorted(items, key=encode) if isinstance(value, (set, frozenset)) else items
    return dumped


def masked(value: Any) -> Any:
    """The value with possible keys masked: in `headers` and `env`, in URLs, and in fields such as `api_key`."""
    if isinstance(value, dict):
        return {name: _masked_field(str(name), part) for name, part in value.items()}
    if isinstance(value, list):
        return [masked(part) for part in value]
    return shown_url(value) if isinstance(value, str) and _URL.fullmatch(value) else value


def _masked_field(name: str, value: Any) -> Any:
    if name in _MAPPINGS_WITH_KEYS and isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    return HIDDEN if isinstance(value, str) and value and _KEY.search(name) else masked(value)
