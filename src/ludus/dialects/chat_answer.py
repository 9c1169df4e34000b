"""Answers: a chat completion and a Responses object, both ways.

Fields at the top of an answer that neither dialect defines are kept. What a Responses object merely repeats of its
request is left out of a completion: whoever asked knows it.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_items import is_assistant, kind_of
from ludus.dialects.chat_style import OPEN, ChatStyle
from ludus.dialects.chat_turn import Turn, turn_from_chat
from ludus.dialects.conversion import Conversion, says, seconds
from ludus.errors import Failure
from ludus.response import Item

_DONE = (None, "stop", "tool_calls", "function_call", "eos", "eos_token", "end_turn", "stop_sequence")
_CUT = {"length": "max_output_tokens", "max_tokens": "max_output_tokens", "content_filter": "content_filter"}
_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}

_CHOICE = frozenset({"index", "message", "finish_reason", "logprobs"})
_COMPLETION = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
_RESPONSE = frozenset(
    {"id", "object", "created_at", "model", "status", "incomplete_details", "output", "usage", "error", "output_text"}
)
REPEATED = frozenset(
    {"background", "conversation", "instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls"}
    | {"previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs"}
    | {"top_p", "truncation", "user"}
)

#: Counts of tokens: what they are called in chat, in Responses, and which count their details always hold.
_FROM_CHAT = (
    ("prompt_tokens", "input_tokens", "cached_tokens"),
    ("completion_tokens", "output_tokens", "reasoning_tokens"),
)
_TO_CHAT = tuple((ours, theirs, first) for theirs, ours, first in _FROM_CHAT)


def from_chat(data: Any, *, style: ChatStyle = OPEN, lost: list[str] | None = None) -> dict[str, Any]:
    """A Chat Completions answer as a Responses object. What is no such answer is a `bad_response`."""
    conversion = Conversion("bad_response", "Responses", lost)
    answer = conversion.object(data, "answer")
    if says(answer.get("error")):
        raise Failure("bad_response", f"the provider failed: {str(answer['error'])[:200]}")
    choices = conversion.objects(answer.get("choices"), "choices")
    if not choices:
        raise conversion.refuse("choices", "a list that holds a choice", answer.get("choices"))
    for index in range(1, len(choices)):
        conversion.lose(f"choices[{index}]")
    choice, path = choices[0], "choices[0].message"
    conversion.leftovers(choice, _CHOICE, "choices[0]")
    message = conversion.object(choice.get("message"), path)
    name = conversion.optional_text(answer.get("id"), "id") or ""
    base = name.removeprefix("chatcmpl-")[:48]
    cut = _cut(choice.get("finish_reason"), conversion)
    output = as_output(turn_from_chat(message, path, style, conversion, f"call_{base}"), base, cut is not None)
    _put_logprobs(output, choice.get("logprobs"), conversion)
    return {
        **{key: value for key, value in answer.items() if key not in _COMPLETION},
        **response_object(name, seconds(answer.get("created")), answer.get("model"), cut, output),
        "usage": _told_usage(answer.get("usage"), conversion),
    }


def response_object(name: str, created: int, model: Any, cut: str | None, output: list[Item]) -> dict[str, Any]:
    """A Responses object with every field that its readers may count on."""
    return {
        "id": name,
        "object": "response",
        "created_at": created,
        "model": model if isinstance(model, str) else "",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def as_output(items: list[Item], base: str, cut: bool) -> list[Item]:
    """Items of a turn in the form in which a server sends them: with ids, a status, and texts as parts."""
    output = []
    for index, item in enumerate(items):
        made: Item
        kind = item["type"]
        if kind == "message":
            content = item["content"]
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
            parts = [{"annotations": [], **part} if part.get("type") == "output_text" else part for part in parts]
            made = {"id": f"msg_{base}_{index}", **item, "content": parts, "status": "completed"}
        elif kind == "function_call":
            made = {"id": f"fc_{item['call_id']}", **item, "status": "completed"}
        else:
            made = {"id": f"rs_{base}_{index}", **item}
        output.append(made)
    if cut and output and output[-1]["type"] != "reasoning":  # which may have ended before the answer was cut
        output[-1]["status"] = "incomplete"
    return output


def _cut(reason: Any, conversion: Conversion) -> str | None:
    """Why an answer was cut short, or None where it was not."""
    told = conversion.optional_text(reason, "choices[0].finish_reason")
    lowered = told.lower() if told else None
    if lowered == "error":
        raise Failure("bad_response", "the provider failed while it answered: finish_reason is error")
    return None if lowered in _DONE else _CUT.get(str(lowered), str(told)[:60])


def _put_logprobs(output: list[Item], logprobs: Any, conversion: Conversion) -> None:
    told = conversion.optional_object(logprobs, "choices[0].logprobs")
    conversion.leftovers(told, {"content"}, "choices[0].logprobs")
    entries = conversion.objects(told.get("content"), "choices[0].logprobs.content")
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


def _told_usage(usage: Any, conversion: Conversion) -> dict[str, Any] | None:
    """What a provider counted. Counts that cannot be read are no reason to lose the answer."""
    try:
        return _usage(usage, _FROM_CHAT, conversion)
    except Failure:
        conversion.lose("usage", "it is not made of counts")
        return None


def _usage(usage: Any, names: tuple[tuple[str, str, str], ...], conversion: Conversion) -> dict[str, Any] | None:
    """Token counts under their other names; counts that only one provider knows are kept."""
    if usage is None:
        return None
    told = conversion.object(usage, "usage")
    made: dict[str, Any] = {}
    total = 0
    for old, new, first in names:
        made[new] = conversion.count(told.get(old), f"usage.{old}")
        total += made[new]
        details = conversion.optional_object(told.get(f"{old}_details"), f"usage.{old}_details")
        counted = conversion.count(details.get(first), f"usage.{old}_details.{first}")
        others = {key: value for key, value in details.items() if value is not None}
        made[f"{new}_details"] = {**others, first: counted}
    made["total_tokens"] = conversion.count(told.get("total_tokens", total), "usage.total_tokens") or total
    known = {name for old, _, _ in names for name in (old, f"{old}_details")}
    return {**{key: value for key, value in told.items() if key not in known and value is not None}, **made}


def answer_to_chat(data: Any, *, style: ChatStyle = OPEN, lost: list[str] | None = None) -> dict[str, Any]:
    """A Responses object as a Chat Completions answer: everything in its output becomes one message."""
    conversion = Conversion("bad_request", "a chat completion", lost)
    response = conversion.object(data, "response")
    cut = _finish_reason(response, conversion)
    turn = Turn(style, conversion)
    items = conversion.objects(response.get("output"), "output")
    for index, item in enumerate(items):
        kind, path = kind_of(item), f"output[{index}]"
        if not is_assistant(kind, item):
            conversion.lose(path, f"a chat completion has no place for an item of type {kind:.60}")
            continue
        if cut and index == len(items) - 1 and (kind != "reasoning" or style.reasoning != "think"):
            item = {key: value for key, value in item.items() if key != "status"}  # finish_reason tells it
        turn.add(kind, item, path)
    annotations, logprobs = _notes(turn, conversion)
    message = (turn.finished() or [{"role": "assistant", "content": None}])[0]
    if isinstance(message["content"], list):
        message["content"] = _one_text(message["content"], f"{turn.said or turn.thought}.content", conversion)
    if annotations:
        message["annotations"] = annotations
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": cut or ("tool_calls" if turn.calls else "stop"),
    }
    extras = response.keys() - _RESPONSE - REPEATED
    return {
        **{key: response[key] for key in response if key in extras},
        "id": conversion.optional_text(response.get("id"), "id") or "",
        "object": "chat.completion",
        "created": seconds(response.get("created_at")),
        "model": conversion.optional_text(response.get("model"), "model") or "",
        "choices": [choice],
        "usage": _usage(response.get("usage"), _TO_CHAT, conversion),
    }


def _finish_reason(response: dict[str, Any], conversion: Conversion) -> str | None:
    """The finish reason of an answer that was cut short; None where it was not."""
    status = response.get("status")
    if status in (None, "completed"):
        return None
    if status != "incomplete":
        raise conversion.refuse("status", "completed or incomplete", status)
    reason = conversion.optional_object(response.get("incomplete_details"), "incomplete_details").get("reason")
    if isinstance(reason, str) and reason in _FINISH:
        return _FINISH[reason]
    conversion.lose("incomplete_details.reason", "chat knows length and content_filter only: it became length")
    return "length"


def _one_text(parts: list[Any], path: str, conversion: Conversion) -> str:
    """The content of an answer, which holds one text, where that of a request may hold parts."""
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    why = "its texts were joined" if len(texts) == len(parts) else "its texts were joined, its other parts left out"
    conversion.lose(path, f"a chat completion holds one text: {why}")
    return "".join(texts)


def _notes(turn: Turn, conversion: Conversion) -> tuple[list[Any], list[Any]]:
    """The annotations and log probabilities that an answer has place for: those of its only text."""
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
