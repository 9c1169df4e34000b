"""How the fields of a foreign row become those of a task.

A mapping says which field goes where: `map: {question: prompt, answer: expected_answer}`. Five targets are special:
`prompt` (a text or a conversation), `system`, `context` (a text after the prompt) and `tools` build
`responses_create_params`, and `options` become lettered choices. Every other target is a field of the task. Unmapped
fields keep their names. A template builds the user's message instead of the `prompt` field's text.
"""

from __future__ import annotations

import re
import string
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from ludus.errors import UserError, did_you_mean
from ludus.prompt import PromptTemplate
from ludus.record import Row
from ludus.store.strict import refuse_losses
from ludus_data.conversations import answer_text, flat_tools, is_conversation, split_conversation

_MISSING = object()
_GOLD = "expected_answer"
_PARTS = ("prompt", "system", "context", "tools", "options")


class RowMapping(BaseModel):
    """A mapping, as a YAML file holds it. Dots lead into objects: `extra_info.answer`.

    `after` keeps what follows the last occurrence of a mark (`answer: "####"`), `boxed` what is in the last
    `\\boxed{}`. `text` turns values into text, `parse` reads text that is JSON. `set` adds fields with fixed values.
    `optional` fields may be missing from a row. `task` is a field that holds the whole task, as an object or as JSON
    text; the other fields of such a row are left out.
    """

    model_config = ConfigDict(extra="forbid")

    #: where each field goes: `{question: prompt, answer: expected_answer}`
    map: dict[str, str] = {}
    after: dict[str, str] = {}
    boxed: list[str] = []
    text: list[str] = []
    parse: list[str] = []
    #: fields to leave out
    drop: list[str] = []
    optional: list[str] = []
    set: dict[str, Any] = {}
    #: a template that builds the prompt from fields
    prompt: PromptTemplate | None = None
    task: str | None = None

    def check(self) -> None:
        """Refuse a mapping if a part of it would be ignored."""
        sources: dict[str, str] = {}
        for source, target in self.map.items():
            if target in sources:
                cause = f"{sources[target]:.60} and {source:.60} are both mapped to {target:.60}"
                raise UserError(cause, "Map one of them to another target, or join them with --prompt")
            sources[target] = source
            if source in self.drop:
                raise UserError(f"{source:.60} is mapped to {target:.60} and dropped", "Leave out one of the two")

    def task_row(self, row: Row, lost: list[str] | None = None) -> Row:
        """The task of a row. `lost` lists the parts of a conversation for which a task has no field."""
        row, lost = self.parsed(row), [] if lost is None else lost
        if self.task is not None:
            row = _whole_task(self.task, row)
        template = self._filled(row)  # before fields move: a template uses the names in the file
        values = self._values(row, lost)
        parts = {target: values.pop(target) for target in _PARTS if target in values}
        for field in (*self.map, *self.drop):
            _remove(row, field)
        clash = next((target for target in values if target.partition(".")[0] in row and "." not in target), None)
        if clash is not None:
            hint = f"Leave the other out with --drop {clash}"
            raise UserError(f"{clash} is a field of the row, and another field is mapped to it", hint)
        task = {**row, **self.set}
        for target, value in values.items():
            _put(task, target, value)
        for field in self.text:
            _put(task, field, _as_text(field, _get(task, field)))
        params = task.pop("responses_create_params", None)
        if template is not None:
            _use_template(template, parts, task)
        return {"responses_create_params": _request(params, parts, task, lost), **task}

    def parsed(self, row: Row) -> Row:
        """A copy of the row with its JSON texts (`parse`) decoded."""
        row = dict(row)
        for field in self.parse:
            _put(row, field, _parsed(field, _get(row, field)))
        return row

    def arrows(self) -> str:
        """The mapping in one line: `question -> prompt, answer -> expected_answer`."""
        shown = []
        for source, target in self.map.items():
            how = f" (after {self.after[source]})" if source in self.after else ""
            how = " (in \\boxed{})" if source in self.boxed else how
            shown.append(f"{source}{how} -> {target}")
        if self.task is not None:
            shown.append(f"{self.task} -> the whole task, each task once")
        return ", ".join(shown) or "as it is"

    def _filled(self, row: Row) -> _Filled | None:
        """The messages of the template for a row."""
        if self.prompt is None:
            return None
        fields = {key: value for key, value in row.items() if key != "responses_create_params"}
        *system, user = self.prompt.fill(fields)["responses_create_params"]["input"]
        named = {re.split(r"[.\[]", name)[0] for _, name, _, _ in string.Formatter().parse(self.prompt.user) if name}
        used = {target for source, target in self.map.items() if source.partition(".")[0] in named}
        return _Filled(system[0]["content"] if system else None, user["content"], used)

    def _values(self, row: Row, lost: list[str]) -> dict[str, Any]:
        """The value of each target."""
        values: dict[str, Any] = {}
        for source, target in self.map.items():
            value = _get(row, source)
            if value is _MISSING:
                if source in self.optional:
                    continue
                hint = did_you_mean(source, [key[:40] for key in row][:20])
                raise UserError(f"the row has no field {source:.60}", hint)
            if value is None and source in self.optional:
                continue
            if source in self.after:
                value = _after(source, value, self.after[source])
            if source in self.boxed:
                value = _boxed(source, value)
            if target == _GOLD and is_conversation(value):
                value = answer_text(source, value, lost)
            values[target] = _as_text(source, value) if source in self.text else value
        return values


class _Filled(NamedTuple):
    """A filled template, and the targets whose fields its user message used."""

    system: str | None
    user: str
    used: set[str]


def _whole_task(field: str, row: Row) -> Row:
    task = _parsed(field, _get(row, field))
    if not isinstance(task, dict):
        raise UserError(f"{field} must hold a task, as JSON", "Choose another --layout")
    return dict(task)


def _use_template(template: _Filled, parts: dict[str, Any], task: Row) -> None:
    """Replace the prompt by the template. A conversation's last answer is still the right answer.

    A context and options follow the template's text, unless the template has used their fields.
    """
    if "prompt" in parts and is_conversation(parts["prompt"]):
        _, answer = split_conversation(parts["prompt"], [])
        if answer is not None:
            task.setdefault(_GOLD, answer)
    parts["prompt"] = template.user
    if template.system is not None:
        parts["system"] = template.system
    if "context" in template.used:
        parts.pop("context", None)
    if "options" in template.used and parts.get("options"):
        _lettered(parts.pop("options"), task)


def _request(params: Any, parts: dict[str, Any], task: Row, lost: list[str]) -> Any:
    """`responses_create_params` of a task; `task` gets what the verifier needs: options, and a last answer."""
    if "prompt" not in parts:
        if isinstance(params, dict) and params.get("input") is not None:
            return params
        raise UserError("the row has no prompt", "Say which field is the prompt: --map FIELD=prompt, or use --prompt")
    prompt = parts["prompt"]
    if isinstance(prompt, str):
        pieces = [prompt, *([parts["context"]] if parts.get("context") else [])]
        if parts.get("options"):
            pieces.append(_lettered(parts["options"], task))
        items = [{"role": "user", "content": "\n\n".join(map(str, pieces))}]
    elif is_conversation(prompt):
        items, answer = split_conversation(prompt, lost)
        if answer is not None:
            task.setdefault(_GOLD, answer)
        if parts.get("options"):  # they stand in the conversation already
            _lettered(parts["options"], task)
    else:
        raise UserError(f"the prompt must be a text or a list of messages, not {prompt!r:.60}", "Map another field")
    if isinstance(parts.get("system"), str) and parts["system"]:
        items = [{"role": "system", "content": parts["system"]}, *items]
    request = {**(params if isinstance(params, dict) else {}), "input": items}
    if parts.get("tools"):
        request["tools"] = flat_tools(parts["tools"], lost)
    return request


def _lettered(options: Any, task: Row) -> str:
    """The lines `A) ...` of a question with choices. The right answer becomes a letter, and `options` a field."""
    labels = None
    if isinstance(options, dict):  # {"text": [...], "label": [...]}
        options, labels = options.get("text"), options.get("label")
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options) or len(options) > 26:
        raise UserError("the options must be a list of at most 26 texts", "Map another field to options")
    letters = string.ascii_uppercase[: len(options)]
    task["options"] = [{letter: option} for letter, option in zip(letters, options, strict=True)]
    gold = task.get(_GOLD)
    if isinstance(gold, int) and not isinstance(gold, bool):
        if not 0 <= gold < len(options):
            raise UserError(f"the right answer is option {gold} of {len(options)}", "Fix the row or leave it out")
        task[_GOLD] = letters[gold]
    elif isinstance(labels, list) and gold in labels:
        task[_GOLD] = letters[labels.index(gold)]
    elif isinstance(gold, str) and gold in options and gold not in letters:
        task[_GOLD] = letters[options.index(gold)]
    return "\n".join(f"{letter}) {option}" for letter, option in zip(letters, options, strict=True))


def _get(row: Row, field: str) -> Any:
    if field in row:
        return row[field]
    value: Any = row
    for step in field.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and re.fullmatch(r"[0-9]{1,9}", step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def _put(row: Row, field: str, value: Any) -> None:
    if value is _MISSING:
        return
    *folders, name = [field] if field in row else field.split(".")
    for step in folders:
        inner = row.get(step)
        row[step] = inner = dict(inner) if isinstance(inner, dict) else {}
        row = inner
    row[name] = value


def _remove(row: Row, field: str) -> None:
    """Remove a field, and an object that is empty without it."""
    if field in row:
        del row[field]
        return
    name, dot, rest = field.partition(".")
    if dot and isinstance(row.get(name), dict):
        row[name] = inner = dict(row[name])
        _remove(inner, rest)
        if not inner:
            del row[name]


def _after(field: str, value: Any, mark: str) -> str:
    if not isinstance(value, str) or mark not in value:
        raise UserError(f"{field} has no {mark!r}", "Fix the row or leave it out")
    return value.rpartition(mark)[2].strip()


def _boxed(field: str, value: Any) -> str:
    """The content of the last `\\boxed{...}` of a text. Braces may be nested."""
    start = value.rfind("\\boxed{") if isinstance(value, str) else -1
    depth = 0
    for token in re.finditer(r"\\.|[{}]", value[start + 6 :], re.DOTALL) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0 and token[0] == "}":
            return str(value[start + 7 : start + 6 + token.start()])
    raise UserError(f"{field} has no \\boxed{{...}}", "Fix the row or leave it out")


def _as_text(field: str, value: Any) -> Any:
    if isinstance(value, str) or value is _MISSING:
        return value
    if isinstance(value, bool) or value is None or isinstance(value, (list, dict)):
        raise UserError(f"{field} is {value!r:.60} and not a text or a number", "Fix the row or leave it out")
    return orjson.dumps(value).decode()


def _parsed(field: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{field} is not JSON: {error.msg}", "Fix the row, or leave --parse out") from error
    refuse_losses(field, value.encode(), content)
    return content
