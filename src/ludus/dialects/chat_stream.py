"""Chat Completions streams: join chunks into a completion, and split a completion into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.conversion import Conversion, has_content
from ludus.errors import Failure

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_LISTS = ("annotations",)
_DETAIL_TEXTS = ("text", "summary", "data")


class ChatStream:
    """Joins the chunks of a stream into a chat completion.

    A stream that ends before every choice has a finish reason is a `bad_response` failure.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._conversion = Conversion("bad_response", "chat", None)

    def add(self, chunk: Any) -> None:
        """Add one chunk."""
        fields = self._conversion.object(chunk, "chunk")
        if has_content(fields.get("error")):
            raise Failure("bad_response", f"the provider failed: {str(fields['error'])[:200]}")
        for choice in self._conversion.objects(fields.get("choices"), "choices"):
            index = self._conversion.count(choice.get("index"), "choices[].index")
            self._choices.setdefault(index, _Choice(self._conversion)).add(choice)
        self._fields.update({key: value for key, value in fields.items() if key != "choices" and value is not None})

    def result(self) -> dict[str, Any]:
        """The completion."""
        if not self._choices or any(choice.fields.get("finish_reason") is None for choice in self._choices.values()):
            raise Failure("bad_response", "the stream ended before the answer was complete")
        choices = [{"index": index, **choice.result()} for index, choice in sorted(self._choices.items())]
        return {"usage": None, **self._fields, "object": "chat.completion", "choices": choices}


class _Choice:
    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.fields: dict[str, Any] = {"finish_reason": None, "logprobs": None}
        self.message: dict[str, Any] = {"role": "assistant"}
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, dict[str, Any]] = {}
        self.details: list[dict[str, Any]] = []

    def add(self, choice: dict[str, Any]) -> None:
        check = self.conversion
        for key, value in choice.items():
            if value is None or key in ("index", "delta"):
                continue
            if key == "logprobs":
                self._add_logprobs(check.object(value, "choices[].logprobs"))
            elif key == "token_ids":
                self._extend(self.fields, key, value)
            else:
                self.fields[key] = value
        delta = check.optional_object(choice.get("delta"), "choices[].delta")
        for key, value in delta.items():
            if value is None:
                continue
            if key in _TEXTS:
                self.texts.setdefault(key, []).append(check.text(value, f"choices[].delta.{key}"))
            elif key == "tool_calls":
                for call in check.objects(value, "choices[].delta.tool_calls"):
                    self._add_call(call)
            elif key == "reasoning_details":
                for detail in check.objects(value, "choices[].delta.reasoning_details"):
                    self._add_detail(detail)
            elif key in _LISTS:
                self._extend(self.message, key, value)
            else:
                self.message[key] = value

    def _add_logprobs(self, logprobs: dict[str, Any]) -> None:
        joined = self.fields["logprobs"] or {}
        for key, value in logprobs.items():
            if value is None:
                joined.setdefault(key, None)
            else:
                joined[key] = joined.get(key) or []
                self._extend(joined, key, value)
        self.fields["logprobs"] = joined

    def _extend(self, holder: dict[str, Any], key: str, value: Any) -> None:
        if not isinstance(value, list):
            raise self.conversion.refuse(f"choices[].{key}", "a list", value)
        holder.setdefault(key, []).extend(value)

    def _add_call(self, piece: dict[str, Any]) -> None:
        """Add a piece of a tool call. On servers that send no index, a new id starts a new call."""
        check = self.conversion
        index = check.count(piece.get("index"), "choices[].delta.tool_calls[].index")
        if piece.get("index") is None:
            index = max(self.calls, default=0)
            if piece.get("id") and self.calls.get(index, piece).get("id") not in (None, piece["id"]):
                index += 1
        call = self.calls.setdefault(index, {"id": None, "type": "function", "name": "", "arguments": []})
        function = check.optional_object(piece.get("function"), "choices[].delta.tool_calls[].function")
        name = check.optional_text(function.get("name"), "choices[].delta.tool_calls[].function.name") or ""
        if name != call["name"]:
            call["name"] += name
        arguments = function.get("arguments")
        call["arguments"].append(
            check.optional_text(arguments, "choices[].delta.tool_calls[].function.arguments") or ""
        )
        for key, value in piece.items():
            if key not in ("index", "function") and has_content(value):
                call[key] = value

    def _add_detail(self, piece: dict[str, Any]) -> None:
        """Add a piece of a reasoning detail. It continues the last detail if type and index are equal."""
        last = self.details[-1] if self.details else {}
        same = all(last.get(key) == piece.get(key) for key in ("type", "index")) and piece.get("index") is not None
        if not same:
            self.details.append(dict(piece))
            return
        for key, value in piece.items():
            if key in _DETAIL_TEXTS and isinstance(value, str) and isinstance(last.get(key), str):
                last[key] += value
            elif value is not None:
                last[key] = value

    def result(self) -> dict[str, Any]:
        message = {"content": None, **self.message, **{key: "".join(pieces) for key, pieces in self.texts.items()}}
        if self.details:
            message["reasoning_details"] = self.details
        if self.calls:
            message["tool_calls"] = [_joined_call(call) for _, call in sorted(self.calls.items())]
        return {"message": message, **self.fields}


def _joined_call(call: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in call.items() if key not in ("name", "arguments")}
    return {**rest, "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}


def chat_chunks(completion: dict[str, Any], *, usage: bool = True) -> Iterator[dict[str, Any]]:
    """Split a chat completion into chunks; with `usage`, the last chunk holds the token counts."""
    common = {key: value for key, value in completion.items() if key not in ("choices", "usage")}
    common["object"] = "chat.completion.chunk"
    for choice in completion["choices"]:
        index = choice.get("index", 0)
        message = choice["message"]
        logprobs = choice.get("logprobs")
        for delta in _deltas(message):
            chunk = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            if "content" in delta:
                chunk["logprobs"], logprobs = logprobs, None
            yield {**common, "choices": [chunk]}
        rest = {key: value for key, value in choice.items() if key not in ("index", "message", "logprobs")}
        yield {**common, "choices": [{"index": index, "delta": {}, "logprobs": logprobs, **rest}]}
    if usage and completion.get("usage") is not None:
        yield {**common, "choices": [], "usage": completion["usage"]}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    first = {key: value for key, value in message.items() if key not in _TEXTS and key not in ("role", "tool_calls")}
    yield {"role": message.get("role", "assistant"), **first}
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        if message.get(key) is not None:
            yield {key: message[key]}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield {"tool_calls": [{"index": index, **call}]}
