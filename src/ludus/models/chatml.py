"""ChatML with tools: the prompt format of small local models, as pure functions.

`turns` converts a request to turns of plain text, and `parse` converts the text that a model wrote to items.

- A turn holds text only. The tokenising caller adds control tokens as ids and tokenises the text without control
  tokens, so no user, tool or model can forge a turn.
- `parse` never raises, and drops only whitespace around calls. `parse` reads back what `assistant_text` writes.
- A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Its arguments are the text that the model wrote,
  JSON or not. The closing tag may be missing after complete JSON. A block without a readable name, or an unfinished
  one, stays text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ludus.errors import Failure
from ludus.response import Item, function_call, message

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CALL_START = "<tool_call>"
CALL_END = "</tool_call>"

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_OPEN = re.compile(r"\s*{?")
_KEY = re.compile(r'\s*,?\s*"([^"\\]*)"\s*:\s*')
_CLOSED = re.compile(r"\s*}\s*(?:</tool_call>|(?=<tool_call>)|\Z)")
_JSON = json.JSONDecoder()

_TOOLS = """\
You can call these tools:
<tools>
{tools}
</tools>
To call a tool, answer with its name and arguments as JSON, like this:
{example}"""


@dataclass(frozen=True, slots=True)
class ChatmlTurn:
    """One turn without its control tokens; `at` is the index of its first item in the request's input."""

    role: str
    text: str
    at: int = -1


def turns(items: list[Item], params: dict[str, Any]) -> list[ChatmlTurn]:
    """The turns of a conversation. Leading system messages share the first turn with the tools."""
    spoken = list(_turns_of(items))
    leading = 0
    while leading < len(spoken) and spoken[leading].role == "system":
        leading += 1
    system = [str(params.get("instructions") or ""), *(turn.text for turn in spoken[:leading])]
    if tools := offered_tools(params):
        system.append(_tools_text(tools))
    text = "\n\n".join(part for part in system if part)
    return [ChatmlTurn("system", text), *spoken[leading:]] if text else spoken[leading:]


def assistant_text(items: list[Item]) -> str:
    """The text that a model writes for these messages and calls."""
    return "\n".join(_call_text(item) if item.get("type") == "function_call" else _message_text(item) for item in items)


def offered_tools(params: dict[str, Any]) -> list[Item]:
    """The function tools that the prompt shows to the model."""
    tools: list[Item] = params.get("tools") or []
    for tool in tools:
        if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            raise Failure("unsupported", f"this model supports only function tools with a name, not {tool!r:.80}")
    return [] if params.get("tool_choice") == "none" else tools


def forced_tools(params: dict[str, Any]) -> list[Item]:
    """The tools that `tool_choice` allows if the model must call one; empty if it need not call any."""
    choice = params.get("tool_choice") or "auto"
    if choice in ("auto", "none"):
        return []
    tools = offered_tools(params)
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = (choice.get("function") or choice).get("name")
        tools = [tool for tool in tools if tool["name"] == name]
    elif choice != "required":
        raise Failure("unsupported", f"this model does not support the tool_choice {choice!r:.80}")
    if not tools:
        raise Failure("bad_request", f"tool_choice {choice!r:.80} asks for a tool that is not offered")
    return tools


def call_grammar(tools: list[Item]) -> str:
    """An LLGuidance grammar that allows exactly one call to one of `tools`, with arguments that match its schema."""
    lines = ["%llguidance {}", f'start: "{CALL_START}" call "{CALL_END}" {TURN_END}']
    lines.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
    for index, tool in enumerate(tools):
        opening = '{"name": ' + json.dumps(tool["name"]) + ', "arguments": '
        lines.append(f'call_{index}: {json.dumps(opening)} arguments_{index} "}}"')
        lines.append(f"arguments_{index}: %json {json.dumps(_strict(tool))}")
    return "\n".join(lines)


def parse(text: str, *, key: str = "") -> list[Item]:
    """Parse text that a model wrote into messages and calls. Ids depend only on `key`, position and content."""
    return items_of_parts(list(_parts(text)), key)


class WrittenCall(NamedTuple):
    """A call with its arguments as text."""

    name: str
    arguments: str


def items_of_parts(parts: list[str | WrittenCall], key: str) -> list[Item]:
    """Messages and calls. Where there is a call, the texts around it lose the whitespace at their ends."""
    if any(isinstance(part, WrittenCall) for part in parts):
        parts = [part for part in (part.strip() if isinstance(part, str) else part for part in parts) if part]
    return [_item(part, f"{key}:{index}") for index, part in enumerate(parts or [""])]


def is_name(name: Any) -> bool:
    """Whether a model may have meant this as the name of a tool."""
    return isinstance(name, str) and name.isprintable() and bool(name)


def _turns_of(items: list[Item]) -> Iterator[ChatmlTurn]:
    """Group items into turns: adjacent assistant items form one turn, and so do adjacent tool outputs."""
    index = 0
    while index < len(items):
        start, kind = index, _kind(items[index])
        index += 1
        while kind in ("assistant", "output") and index < len(items) and _kind(items[index]) in (kind, None):
            index += 1
        group = [item for item in items[start:index] if _kind(item)]
        if kind == "assistant":
            yield ChatmlTurn("assistant", assistant_text(group), start)
        elif kind == "output":
            outputs = (_text(item.get("output")) for item in group)
            yield ChatmlTurn("user", "\n".join(f"<tool_response>{output}</tool_response>" for output in outputs), start)
        elif kind:
            yield ChatmlTurn(kind, _message_text(items[start]), start)


def _kind(item: Item) -> str | None:
    """The role of an item's turn, or `output` for a tool output. None for reasoning, which is left out of prompts."""
    role = item.get("role", "assistant")
    match item.get("type") or "message":
        case "message" if role in _ROLES:
            return _ROLES[role]
        case "function_call":
            return "assistant"
        case "function_call_output":
            return "output"
        case "reasoning":
            return None
        case other:
            raise Failure("unsupported", f"this model cannot read an item of type {other} and role {role!r}")


def _message_text(item: Item) -> str:
    return _text(item.get("content"))


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind not in _TEXT_PARTS:
        raise Failure("unsupported", f"this model reads text only, not {kind}")
    return str(part.get(_TEXT_PARTS[kind]) or "")


def _call_text(item: Item) -> str:
    name = json.dumps(str(item.get("name", "")), ensure_ascii=False)
    return f'{CALL_START}{{"name": {name}, "arguments": {item.get("arguments") or "{}"}}}{CALL_END}'


def _tools_text(tools: list[Item]) -> str:
    shown = ({key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)} for tool in tools)
    names = (tools[0].get("parameters") or {}).get("properties") or {}
    example = {"name": tools[0]["name"], "arguments": dict.fromkeys(names, "...")}
    return _TOOLS.format(
        tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in shown),
        example=f"{CALL_START}{json.dumps(example, ensure_ascii=False)}{CALL_END}",
    )


def _strict(tool: Item) -> dict[str, Any]:
    """The tool's schema without additional arguments by default, and with the whitespace of `json.dumps`."""
    spacing = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    schema = {"type": "object", "properties": {}, "additionalProperties": False, **(tool.get("parameters") or {})}
    return {**schema, "x-guidance": spacing}


def _parts(text: str) -> Iterator[str | WrittenCall]:
    """Split a text into text and calls. A `<tool_call>` block that is not a call stays part of the text."""
    emitted = searched = 0
    while (block := text.find(CALL_START, searched)) >= 0:
        searched = block + len(CALL_START)
        if (read := _read_call(text, searched)) is None:
            continue
        call, end = read
        if block > emitted:
            yield text[emitted:block]
        yield call
        emitted = searched = end
    if emitted < len(text):
        yield text[emitted:]


def _read_call(text: str, start: int) -> tuple[WrittenCall, int] | None:
    """The call whose block opens before `start`, and the end of the block. None if it cannot be read as a call."""
    members, after = _members(text, start)
    if (closed := _CLOSED.match(text, after)) is not None:
        end = closed.end()
    elif (close := text.find(CALL_END, start)) >= 0:
        members, _ = _members(text[:close], start)
        end = close + len(CALL_END)
    else:
        return None
    name = _parsed_json(members.get("name", ""))
    if not is_name(name):
        return None
    return WrittenCall(name, members.get("arguments") or "{}"), end


def _members(text: str, start: int) -> tuple[dict[str, str], int]:
    """The members of a JSON object as raw text, and the end of the last one.

    A value that is not JSON extends to the end of the text and is the last member.
    """
    members: dict[str, str] = {}
    opening = _OPEN.match(text, start)
    at = opening.end() if opening else start
    while key := _KEY.match(text, at):
        try:
            _, at = _JSON.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            members[key[1]] = text[key.end() :].strip()
            return members, len(text)
        members[key[1]] = text[key.end() : at]
    return members, at


def _parsed_json(raw: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _item(part: str | WrittenCall, key: str) -> Item:
    content = part if isinstance(part, str) else f"{part.name}:{part.arguments}"
    digest = hashlib.sha256(f"{key}:{content}".encode(errors="replace")).hexdigest()[:24]
    if isinstance(part, str):
        return message(part, id=f"msg_{digest}")
    return function_call(part.name, part.arguments, call_id=f"call_{digest}")
