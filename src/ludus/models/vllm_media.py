"""What vLLM made of the images in a prompt: where their ids are, and what its encoder reads.

`/v1/chat/completions/render` says it in `features`, and `/inference/v1/generate` takes it beside the ids.
"""

from __future__ import annotations

from typing import Any

from ludus.errors import Failure
from ludus.models.history import NewSequence

#: The fields of `features`: a list for each kind of media.
_FIELDS = ("mm_hashes", "mm_placeholders", "kwargs_data")

Features = dict[str, dict[str, list[Any]]]


def features_of(held: Features | None, rendering: dict[str, Any], length: int) -> Features:
    """The images of a prompt of `length` ids: those that it held before, and those of a rendering that is its end."""
    try:
        return _joined(held, rendering.get("features") or {}, rendering["token_ids"], length)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Failure("bad_response", f"the features of a rendering are not in their form: {error!r}") from error


def _joined(held: Features | None, found: dict[str, Any], ids: list[int], length: int) -> Features:
    features: Features = {key: {kind: [*each] for kind, each in (held or {}).get(key, {}).items()} for key in _FIELDS}
    for kind, places in (found.get("mm_placeholders") or {}).items():
        if any(len(set(ids[place["offset"] :][: place["length"]])) != 1 for place in places):
            # The route for ids does not know which of them the encoder fills.
            raise NewSequence("images of this model are more than placeholders, which only the chat route can send")
        moved = [{**place, "offset": place["offset"] + length - len(ids)} for place in places]
        data = (found.get("kwargs_data") or {}).get(kind) or [None] * len(places)
        for key, added in zip(_FIELDS, (found["mm_hashes"][kind], moved, data), strict=True):
            features[key].setdefault(kind, []).extend(added)
    return features
