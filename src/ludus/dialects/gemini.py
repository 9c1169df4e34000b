"""The body of a request in Gemini's dialect (`generateContent`) as the parameters of a Responses request.

A turn of Gemini is `{role: user | model, parts}`. Its calls may have no ids: the n-th call then gets the id `call_n`,
and a result without an id belongs to the first call of its name that has none yet. A result is an object; one that
holds only an `output` text, as Gemini's own programs send it, becomes that text. `lost` lists what Responses cannot
hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.dialects.chat_parts import Part, add_parts, joined_turn
from ludus.dialects.chat_reasoning import summary
from ludus.dialects.conversion import Conversion, Item, has_content
from ludus.dialects.gemini_tools import put_choice, put_config, tools_of

_CONVERTED = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"})
_PART = frozenset({"text", "thought", "thoughtSignature"})
_CALL = frozenset({"id", "name", "args"})
_RESULT = frozenset({"id", "name", "response", "willContinue", "scheduling"})
_ROLES = (None, "user", "model", "function")


def request_from_gemini(body: Any, *, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert the body of a Gemini request to the parameters of a Responses request, including `input`."""
    conversion = Conversion("bad_request", "Responses", lost)
    fields = {_camel(key): value for key, value in conversion.object(body, "body").items() if value is not None}
    if not isinstance(fields.get("contents"), list):
        raise conversion.refuse("contents", "a list of objects", fields.get("contents"))
    conversion.leftovers(fields, _CONVERTED, "body")
    params: dict[str, Any] = {"input": _Turns(conversion).items(fields["contents"])}
    if instructions := _instructions(fields.get("systemInstruction"), conversion):
        params["instructions"] = instructions
    if tools := tools_of(fields.get("tools"), conversion):
        params["tools"] = tools
    put_choice(params, fields.get("toolConfig"), conversion)
    put_config(params, fields.get("generationConfig"), conversion)
    return params


def turn_reader() -> Callable[[Any], list[Item]]:
    """A function that converts the turns of one conversation, one after another."""
    turns = _Turns(Conversion("bad_request", "Responses", None))
    return lambda turn: turns.items([turn])


class _Turns:
    """Converts the turns of a conversation, and gives ids to calls that have none."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._calls = 0
        self._open: list[tuple[str, str]] = []  # name and id of calls without a result

    def items(self, contents: list[Any]) -> list[Item]:
        check, items = self._conversion, list[Item]()
        for index, turn in enumerate(check.objects(contents, "contents")):
            path = f"contents[{index}]"
            check.leftovers(turn, {"role", "parts"}, path)
            role = check.optional_text(turn.get("role"), f"{path}.role")
            if role not in _ROLES:
                raise check.refuse(f"{path}.role", "user or model", role)
            parts = check.objects(turn.get("parts"), f"{path}.parts")
            convert = self._answered if role == "model" else self._said
            items += convert(parts, f"{path}.parts")
        return items

    def _said(self, parts: list[dict[str, Any]], path: str) -> list[Item]:
        """A user's turn: messages and results of tools, in order."""
        items: list[Item] = []
        for index, part in enumerate(parts):
            here = f"{path}[{index}]"
            if "functionResponse" in part:
                items.append(self._result(part["functionResponse"], f"{here}.functionResponse"))
            else:
                add_parts(items, "user", self._parts(part, here))
        return joined_turn(items, "user", "input_text")

    def _answered(self, parts: list[dict[str, Any]], path: str) -> list[Item]:
        """A turn of the model: thoughts, text and calls, in order."""
        check, items = self._conversion, list[Item]()
        for index, part in enumerate(parts):
            here = f"{path}[{index}]"
            if "functionCall" in part:
                items.append(self._call(part["functionCall"], f"{here}.functionCall"))
            elif "text" not in part:
                check.lose(here, "Responses has no place for this part of an answer")
            elif part.get("thought"):
                items.append(summary(check.text(part["text"], f"{here}.text")))
            else:
                text = {"type": "output_text", "text": check.text(part["text"], f"{here}.text")}
                check.leftovers(part, _PART, here)
                add_parts(items, "assistant", [text])
        return joined_turn(items, "assistant", "output_text")

    def _call(self, value: Any, path: str) -> Item:
        check = self._conversion
        call = check.object(value, path)
        check.leftovers(call, _CALL, path)
        self._calls += 1
        name = check.text(call.get("name"), f"{path}.name")
        call_id = check.optional_text(call.get("id"), f"{path}.id") or f"call_{self._calls}"
        self._open.append((name, call_id))
        arguments = check.json_text(check.optional_object(call.get("args"), f"{path}.args"), f"{path}.args")
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}

    def _result(self, value: Any, path: str) -> Item:
        check = self._conversion
        result = check.object(value, path)
        check.leftovers(result, _RESULT, path)
        name = check.text(result.get("name"), f"{path}.name")
        named = check.optional_text(result.get("id"), f"{path}.id")
        matching = [call for call in self._open if (call[1] == named if named else call[0] == name)]
        call_id = named or (matching[0][1] if matching else f"call_of_{name}")
        if matching:
            self._open.remove(matching[0])
        response = check.optional_object(result.get("response"), f"{path}.response")
        output = response.get("output")
        if len(response) != 1 or not isinstance(output, str):
            output = check.json_text(response, f"{path}.response")
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def _parts(self, part: dict[str, Any], path: str) -> list[Part]:
        check = self._conversion
        if "text" in part:
            check.leftovers(part, _PART, path)
            return [{"type": "input_text", "text": check.text(part["text"], f"{path}.text")}]
        if "inlineData" in part:
            data = check.object(part["inlineData"], f"{path}.inlineData")
            kind = check.text(data.get("mimeType"), f"{path}.inlineData.mimeType")
            content = check.text(data.get("data"), f"{path}.inlineData.data")
            return [_file(kind, f"data:{kind};base64,{content}", "file_data")]
        if "fileData" in part:
            data = check.object(part["fileData"], f"{path}.fileData")
            kind = check.optional_text(data.get("mimeType"), f"{path}.fileData.mimeType") or ""
            return [_file(kind, check.text(data.get("fileUri"), f"{path}.fileData.fileUri"), "file_url")]
        check.lose(path, f"Responses has no place for a part with {', '.join(map(str, part))[:60] or 'nothing in it'}")
        return []


def _file(kind: str, place: str, field: str) -> Part:
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": place}
    return {"type": "input_file", field: place}


def _instructions(value: Any, conversion: Conversion) -> str:
    """The system instruction: a content with texts, or a text."""
    if value is None or isinstance(value, str):
        return value or ""
    content = conversion.object(value, "systemInstruction")
    conversion.leftovers(content, {"role", "parts"}, "systemInstruction")
    parts = content.get("parts")
    texts = []
    for index, part in enumerate(conversion.objects([parts] if isinstance(parts, dict) else parts, "parts")):
        path = f"systemInstruction.parts[{index}]"
        if has_content(part.get("text")):
            texts.append(conversion.text(part["text"], f"{path}.text"))
        conversion.leftovers(part, _PART, path)
    return "\n".join(texts)


def _camel(key: str) -> str:
    """`system_instruction` as `systemInstruction`: Gemini accepts both spellings."""
    first, *rest = str(key).split("_")
    return first + "".join(word.capitalize() for word in rest)
