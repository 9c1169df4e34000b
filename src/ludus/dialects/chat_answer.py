"""Converters between a chat completion and a Responses object.

Top-level fields that neither dialect defines are kept. Request fields that a Responses object echoes are left out of a
chat completion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.chat_items import is_assistant, kind_of
from ludus.dialects.chat_style import OPEN, ChatStyle
from ludus.dialects.chat_turn import AssistantTurn, turn_from_chat
from ludus.dialects.conversion import Conversion, Item, has_content, seconds
from ludus.errors import Failure

_DONE = (None, "stop", "tool_calls", "function_call", "eos", "eos_token", "end_turn", "stop_sequence")
_INCOMPLETE = {"length": "max_output_tokens", "max_tokens": "max_output_tokens", "content_filter": "content_filter"}
_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}

_CHOICE = frozenset({"index", "message", "finish_reason", "logprobs"})
_COMPLETION = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
RESPONSE_FIELDS = frozenset(
    {"id", "object", "created_at", "model", "status", "incomplete_details", "output", "usage", "error", "output_text"}
)
ECHOED_FIELDS = frozenset(
    {"background", "conversation", "instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls"}
    | {"previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs"}
    | {"top_p", "truncation", "user"}
)

#: Token counts: the name in chat, the name in Responses, and the count that its details always hold.
_FROM_CHAT = (
    ("prompt_tokens", "input_tokens", "cached_tokens"),
    ("completion_tokens", "output_tokens", "reasoning_tokens"),
)
_TO_CHAT = tuple((responses, chat, detail) for chat, responses, detail in _FROM_CHAT)


def from_chat(data: Any, *, style: ChatStyle = OPEN, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a chat completion to a Responses object. Invalid input is a `bad_response` failure."""
    conversion = Conversion("bad_response", "Responses", lost)
    answer = conversion.object(data, "answer")
    if has_content(answer.get("error")):
        raise Failure("bad_response", f"the provider failed: {str(answer['error'])[:200]}")
    choices = conversion.objects(answer.get("choices"), "choices")
    if not choices:
        raise conversion.refuse("choices", "a list that holds a choice", answer.get("choices"))
    for index in range(1, len(choices)):
        conversion.lose(f"choices[{index}]")
    choice, path = choices[0], "choices[0].message"
    conversion.leftovers(choice, _CHOICE, "choices[0]")
    message = conversion.object(choice.get("message"), path)
    answer_id = conversion.optional_text(answer.get("id"), "id") or ""
    base = answer_id.removeprefix("chatcmpl-")[:48]
    reason = _incomplete_reason(choice.get("finish_reason"), conversion)
    output = as_output(turn_from_chat(message, path, style, conversion, f"call_{base}"), base, reason is not None)
    _put_logprobs(output, choice.get("logprobs"), conversion)
    return {
        **{key: value for key, value in answer.items() if key not in _COMPLETION},
        **response_object(answer_id, seconds(answer.get("created")), answer.get("model"), reason, output),
        "usage": _readable_usage(answer.get("usage"), conversion),
    }


def response_object(id_: str, created: int, model: Any, reason: str | None, output: list[Item]) -> dict[str, Any]:
    """A Responses object with all required fields; `reason` says why the answer is incomplete."""
    return {
        "id": id_,
        "object": "response",
        "created_at": created,
        "model": model if isinstance(model, str) else "",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def as_output(items: list[Item], base: str, incomplete: bool) -> list[Item]:
    """Items of a turn as a server sends them: with ids, a status, and text as content parts."""
    output = []
    for index, item in enumerate(items):
        sent: Item
        kind = item["type"]
        if kind == "message":
            content = item["content"]
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
            parts = [{"annotations": [], **part} if part.get("type") == "output_text" else part for part in parts]
            sent = {"id": f"msg_{base}_{index}", **item, "content": parts, "status": "completed"}
        elif kind == "function_call":
            sent = {"id": f"fc_{item['call_id']}", **item, "status": "completed"}
        else:
            sent = {"id": f"rs_{base}_{index}", **item}
        output.append(sent)
    if incomplete and output and output[-1]["type"] != "reasoning":  # reasoning may be complete if the text is cut off
        output[-1]["status"] = "incomplete"
    return output


def _incomplete_reason(finish_reason: Any, conversion: Conversion) -> str | None:
    """Why an answer is incomplete; None if it is complete."""
    reason = conversion.optional_text(finish_reason, "choices[0].finish_reason")
    lowered = reason.lower() if reason else None
    if lowered == "error":
        raise Failure("bad_response", "the provider failed while it answered: finish_reason is error")
    return None if lowered in _DONE else _INCOMPLETE.get(str(lowered), str(reason)[:60])


def _put_logprobs(output: list[Item], logprobs: Any, conversion: Conversion) -> None:
    fields = conversion.optional_object(logprobs, "choices[0].logprobs")
    conversion.leftovers(fields, {"content"}, "choices[0].logprobs")
    entries = conversion.objects(fields.get("content"), "choices[0].logprobs.content")
    if not entries:
        return
    texts = [
        part
        for item in output
        if item["type"] == "message"
        for part in item["content"]
        if part.get("type") == "output_text"
    ]
    if len(texts) == 1:
        texts[0]["logprobs"] = entries
    else:
        conversion.lose("choices[0].logprobs.content", "there is not one text that they could belong to")


def _readable_usage(usage: Any, conversion: Conversion) -> dict[str, Any] | None:
    """The provider's token counts. Invalid counts become None, and the answer is kept."""
    try:
        return _usage(usage, _FROM_CHAT, conversion)
    except Failure:
        conversion.lose("usage", "it is not made of counts")
        return None


def _usage(usage: Any, names: tuple[tuple[str, str, str], ...], conversion: Conversion) -> dict[str, Any] | None:
    """Rename token counts from one dialect to the other; provider-specific counts are kept."""
    if usage is None:
        return None
    counts = conversion.object(usage, "usage")
    renamed: dict[str, Any] = {}
    total = 0
    for old, new, detail in names:
        renamed[new] = conversion.count(counts.get(old), f"usage.{old}")
        total += renamed[new]
        details = conversion.optional_object(counts.get(f"{old}_details"), f"usage.{old}_details")
        counted = conversion.count(details.get(detail), f"usage.{old}_details.{detail}")
        others = {key: value for key, value in details.items() if value is not None}
        renamed[f"{new}_details"] = {**others, detail: counted}
    renamed["total_tokens"] = conversion.count(counts.get("total_tokens", total), "usage.total_tokens") or total
    known = {name for old, _, _ in names for name in (old, f"{old}_details")}
    return {**{key: value for key, value in counts.items() if key not in known and value is not None}, **renamed}


def answer_to_chat(data: Any, *, style: ChatStyle = OPEN, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a Responses object to a chat completion: its whole output becomes one message."""
    conversion = Conversion("bad_request", "a chat completion", lost)
    response = conversion.object(data, "response")
    cut_off = reason_to(response, _FINISH, "length", conversion)
    turn = AssistantTurn(style, conversion)
    items = conversion.objects(response.get("output"), "output")
    for index, kind, item in written(items, conversion):
        if cut_off and index == len(items) - 1 and (kind != "reasoning" or style.reasoning != "think"):
            item = {key: value for key, value in item.items() if key != "status"}  # finish_reason replaces it
        turn.add(kind, item, f"output[{index}]")
    annotations, logprobs = _notes(turn, conversion)
    message = (turn.finished() or [{"role": "assistant", "content": None}])[0]
    if isinstance(message["content"], list):
        path = f"{turn.message_path or turn.reasoning_path}.content"
        message["content"] = _one_text(message["content"], path, conversion)
    if annotations:
        message["annotations"] = annotations
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": cut_off or ("tool_calls" if turn.calls else "stop"),
    }
    extras = response.keys() - RESPONSE_FIELDS - ECHOED_FIELDS
    return {
        **{key: response[key] for key in response if key in extras},
        "id": conversion.optional_text(response.get("id"), "id") or "",
        "object": "chat.completion",
        "created": seconds(response.get("created_at")),
        "model": conversion.optional_text(response.get("model"), "model") or "",
        "choices": [choice],
        "usage": _usage(response.get("usage"), _TO_CHAT, conversion),
    }


def written(output: list[Item], conversion: Conversion) -> Iterator[tuple[int, str, Item]]:
    """The items of an answer that a model writes, each with its index and its kind. Others are listed as lost."""
    for index, item in enumerate(output):
        kind = kind_of(item)
        if is_assistant(kind, item):
            yield index, kind, item
        else:
            conversion.lose(f"output[{index}]", f"{conversion.target} has no place for an item of type {kind:.60}")


def reason_to(response: dict[str, Any], reasons: dict[str, str], default: str, conversion: Conversion) -> str | None:
    """The other dialect's reason why an answer is incomplete; None if it is complete."""
    status = response.get("status")
    if status in (None, "completed"):
        return None
    if status != "incomplete":
        raise conversion.refuse("status", "completed or incomplete", status)
    reason = conversion.optional_object(response.get("incomplete_details"), "incomplete_details").get("reason")
    if isinstance(reason, str) and reason in reasons:
        return reasons[reason]
    conversion.lose("incomplete_details.reason", f"{conversion.target} has no such reason: it became {default}")
    return default


def _one_text(parts: list[Any], path: str, conversion: Conversion) -> str:
    """Join content parts to one text: a chat completion holds one text, a chat request may hold parts."""
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    why = "its texts were joined" if len(texts) == len(parts) else "its texts were joined, its other parts left out"
    conversion.lose(path, f"a chat completion holds one text: {why}")
    return "".join(texts)


def _notes(turn: AssistantTurn, conversion: Conversion) -> tuple[list[Any], list[Any]]:
    """The annotations and log probabilities of a turn with one text. A completion can hold no others."""
    annotations: list[Any] = []
    logprobs: list[Any] = []
    if len(turn.parts) == 1:
        notes, turn.notes = turn.notes, []
        for path, key, value in notes:
            entries = conversion.objects(value, f"{path}.{key}")
            if key == "logprobs":
                logprobs = entries
                continue
            for index, entry in enumerate(entries):
                if entry.get("type") == "url_citation":
                    inner = {name: part for name, part in entry.items() if name != "type"}
                    annotations.append({"type": "url_citation", "url_citation": inner})
                else:
                    conversion.lose(f"{path}.annotations[{index}]", "a chat completion cites URLs only")
    return annotations, logprobs
