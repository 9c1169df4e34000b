"""Prompt templates: how the fields of a row become its prompt.

A row that has `responses_create_params.input` keeps it. For other rows a template builds it: `{field}` is a field of
the row, `{field[key]}` and `{field.key}` are values inside it, `{{` is a brace. Only the values of a row are looked up,
never attributes of Python objects, and a value that contains braces is not a template.
"""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr, field_validator

from ludus.errors import UserError, did_you_mean
from ludus.runtime.numbers import whole_number
from ludus.runtime.settings import checked, read_yaml

#: A piece of a template: text, then a field's path with its conversion and its format; no path at the end.
_Piece = tuple[str, list[str | int] | None, str | None, str]

#: The largest width in a format such as `{answer:>20}`.
_MAX_WIDTH = 500


class PromptTemplate(BaseModel):
    """`system` and `user` messages with `{field}` in them. `system` may be left out.

    PromptTemplate(user="Answer in one word: {question}").fill({"question": "Are cats liquid?"})
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str
    system: str | None = None

    _pieces: list[tuple[str, list[_Piece]]] = PrivateAttr()

    @field_validator("user", "system")
    @classmethod
    def _is_template(cls, text: str | None) -> str | None:
        if text is not None:
            _parse(text)
        return text

    def model_post_init(self, _context: Any) -> None:
        messages = (("system", self.system), ("user", self.user))
        self._pieces = [(role, _parse(text)) for role, text in messages if text is not None]

    def fill(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the prompt as `responses_create_params.input`; the row itself if it has one."""
        params = row.get("responses_create_params")
        params = {} if params is None else params
        if not isinstance(params, dict) or params.get("input") not in (None, "", []):
            return row
        messages = [{"role": role, "content": _text(pieces, row)} for role, pieces in self._pieces]
        return {**row, "responses_create_params": {**params, "input": messages}}


def load_prompt(source: str | Path | dict[str, Any] | PromptTemplate, folder: Path | None = None) -> PromptTemplate:
    """A template from `{system, user}`, from a YAML file that holds these keys, or from the text of a user message.

    A text is a file, relative to `folder`, unless it contains a brace.
    """
    if isinstance(source, PromptTemplate):
        return source
    if isinstance(source, dict):
        return checked(PromptTemplate, source, "prompt")
    if isinstance(source, str) and "{" in source:
        return checked(PromptTemplate, {"user": source}, "prompt")
    path = (folder or Path()) / source
    content = read_yaml(path, "prompt")
    if not isinstance(content, dict):
        raise UserError(f"prompt {path} must hold a mapping", "Example: user: 'Question: {question}'")
    return checked(PromptTemplate, content, f"prompt {path}")


def _parse(template: str) -> list[_Piece]:
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"not a template: {error}; a brace is written {{{{ or }}}}") from error
    parsed: list[_Piece] = []
    for text, name, spec, conversion in pieces:
        if conversion not in (None, "r", "s", "a"):
            raise ValueError(f"not a template: the conversion !{conversion} is unknown; write !r, !s, !a or none")
        if spec and "{" in spec:
            raise ValueError(f"not a template: the format {spec!r:.40} holds a field")
        if spec and any(
            len(digits.lstrip("0")) > 3 or int(digits) > _MAX_WIDTH for digits in re.findall("[0-9]+", spec)
        ):
            raise ValueError(f"not a template: the format {spec!r:.40} is wider than {_MAX_WIDTH} characters")
        parsed.append((text, None if name is None else _path(name), conversion, spec or ""))
    return parsed


def _path(name: str) -> list[str | int]:
    """The steps of `field`, `field.key` or `field[0]`."""
    if re.fullmatch(r"[^.\[\]{}]+(\.[^.\[\]{}]+|\[[^\[\]{}]+\])*", name) is None:
        raise ValueError(f"not a template: {{{name:.40}}} names no field; a brace is written {{{{ or }}}}")
    steps = re.findall(r"[^.\[\]]+", name)
    return [steps[0], *map(_step, steps[1:])]


def _step(text: str) -> str | int:
    """The number of an element, or the name of a field."""
    number = whole_number(text, digits=9)
    return text if number is None else number


def _text(pieces: list[_Piece], row: dict[str, Any]) -> str:
    return "".join(text if path is None else text + _value(path, how, spec, row) for text, path, how, spec in pieces)


def _value(path: list[str | int], how: str | None, spec: str, row: dict[str, Any]) -> str:
    value: Any = row
    for step in path:
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            name = ".".join(map(str, path))
            hint = did_you_mean(str(step), [key[:40] for key in row][:20]) if value is row else "Fix the row"
            raise UserError(f"the prompt needs the field {name}, and the row has none", hint)
    if value is None:
        raise UserError(f"the prompt needs the field {'.'.join(map(str, path))}, and it is null", "Fix the row")
    converted = repr(value) if how == "r" else ascii(value) if how == "a" else value
    try:
        return format(converted, spec) if spec else str(converted)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the field {'.'.join(map(str, path))} cannot be written as {spec!r:.40}: {error}") from error
