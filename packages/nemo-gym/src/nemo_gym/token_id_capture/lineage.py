"""Finds the call that a model call continues: the one whose request and answer are the longest start of its messages.

Then its token ids continue those of its parent, and no text is tokenized again. Messages are compared by what a model
wrote or read, and not by how a client spells it. Reasoning is left out, because clients drop it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym.token_id_capture.stores import InMemoryLineageStore, LineageStore


class ParentResolutionStatus(StrEnum):
    """How the search for a call's parent ended."""

    ROOT = "root"  #: the request holds no answer of a model: the call begins a conversation
    RESOLVED = "resolved"
    AMBIGUOUS = "ambiguous"  #: several calls gave the same answer to the same request
    UNRESOLVED = "unresolved"  #: the request holds an answer that no captured call gave


@dataclass(frozen=True)
class ParentResolution:
    """The parent of a call, if there is exactly one."""

    status: ParentResolutionStatus
    parent_model_call_id: str | None = None


class LineageResolver:
    """Remembers the calls of rollouts and finds the parents of new ones."""

    def __init__(self, store: LineageStore | None = None) -> None:
        self.store: LineageStore = store if store is not None else InMemoryLineageStore()

    def resolve(self, rollout_id: str, messages: Iterable[Any]) -> ParentResolution:
        """The call that a request with these messages continues."""
        plain = [_plain(message) for message in messages]
        if not any(message["role"] == "assistant" for message in plain):
            return ParentResolution(ParentResolutionStatus.ROOT)
        known = self.store.find(rollout_id)
        for digest in reversed(list(_digests(plain))):
            calls = known.get(digest, [])
            if len(calls) > 1:
                return ParentResolution(ParentResolutionStatus.AMBIGUOUS)
            if calls:
                return ParentResolution(ParentResolutionStatus.RESOLVED, calls[0])
        return ParentResolution(ParentResolutionStatus.UNRESOLVED)

    def record(self, rollout_id: str, model_call_id: str, messages: Iterable[Any], answer: Any) -> None:
        """Remember a call: the messages of its request, and the message that the model answered."""
        plain = [_plain(message) for message in (*messages, answer)]
        *_, digest = _digests(plain)
        self.store.add(rollout_id, digest, model_call_id)


def _digests(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The digest of each start of a conversation."""
    state = hashlib.sha256()
    for message in messages:
        encoded = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
        state.update(len(encoded).to_bytes(8, "big") + encoded)
        yield state.copy().hexdigest()


def _plain(message: Any) -> dict[str, Any]:
    """What two spellings of one message share."""
    fields = message.model_dump() if isinstance(message, BaseModel) else message
    if not isinstance(fields, Mapping):
        raise ValueError(f"a message must be a mapping, not {type(message).__name__}")
    calls = fields.get("tool_calls") or []
    return {
        "role": str(fields.get("role")),
        "content": _content(fields.get("content")),
        "tool_calls": [_call(call) for call in calls if isinstance(call, Mapping)],
        "tool_call_id": fields.get("tool_call_id"),
    }


def _content(content: Any) -> Any:
    """Texts are joined, and no content is an empty text. Other parts stay as they are."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else content


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    try:
        arguments = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        pass  # a model may write arguments that are no JSON: they are compared as text
    return [call.get("id"), function.get("name"), arguments]
