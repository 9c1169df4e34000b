"""A tool: a method, the schema that the model sees, and the check of the model's arguments.

Every call returns a text for the model. A failed call returns a `ToolError`, in the format of common HTTP tool servers:
`{"detail": "Not Found"}` for a tool that is not offered, a `detail` list for arguments that do not fit the schema, an
`error` text for arguments that are not JSON and for a tool that raised.
"""

from __future__ import annotations

import inspect
import re
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NotRequired, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict  # pydantic reads the standard library's only from Python 3.12 on

from ludus.errors import STRAY_CANCEL, Failure, defined_at, place_of_error
from ludus.runtime.boundary import is_interrupt
from ludus.runtime.encoding import NotJsonError, encode, encode_result
from ludus.runtime.keys import without_keys_and_paths
from ludus.runtime.threads import awaited

_TYPING = frozenset({"type", "anyOf", "allOf", "oneOf", "$ref", "enum", "const"})
_CONTENT = frozenset({"enum", "const", "default", "examples"})  # keys that hold values, not schemas
_ARGUMENT_LINE = re.compile(r"^\s+(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


ToolErrorKind = Literal["unknown_tool", "bad_arguments", "raised"]


@dataclass(frozen=True)
class Raised:
    """The exception of a tool, for its author: the class, the whole text, and the author's line. No model reads it."""

    exception: str
    text: str
    where: str | None = None


class ToolError(str):
    """The text of a failed call, with the `kind` of error. The output of a tool that ran is a plain `str`.

    `raised` is the exception, if the tool's own code raised one. A model that calls a tool wrongly raises none.
    """

    kind: ToolErrorKind
    raised: Raised | None

    def __new__(cls, text: str, kind: ToolErrorKind = "raised", raised: Raised | None = None) -> ToolError:
        """A text with the kind of its error."""
        error = super().__new__(cls, text)
        error.kind, error.raised = kind, raised
        return error


class Tool:
    """One method that a model may call."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name

    def schema(self) -> dict[str, Any]:
        """The tool as the Responses API describes it."""
        return dict(self._schema)

    async def run(self, owner: object, arguments: str, *, lenient: bool = False) -> str:
        """Check the arguments, run the method, and return the text that the model sees.

        `lenient` also accepts what pydantic can coerce (`"3"` for 3), as the reference does.
        """
        try:
            values = self._check(arguments, lenient)
        except ValidationError as error:
            return _arguments_error(error)
        try:
            result = await awaited(self.function, owner, **values)
            return result if isinstance(result, str) else encode_result(result).decode()
        except Failure:
            raise
        except NotJsonError as error:
            text = f"{self.name} returned {error}"
            return error_text(text, raised=Raised("TypeError", text, defined_at(self.function)))
        except BaseException as error:
            if is_interrupt(error):
                raise
            stray, name = isinstance(error, CancelledError), type(error).__name__
            text = STRAY_CANCEL if stray else without_keys_and_paths(f"{name}: {error}")
            return error_text(text, raised=Raised(name, text, place_of_error(error)))

    def _check(self, arguments: str, lenient: bool) -> dict[str, Any]:
        text = arguments or "{}"  # some models send nothing for a tool without parameters
        try:
            values: dict[str, Any] = self._arguments.validator.validate_json(text, strict=True)
            return values
        except ValidationError as strict:
            # If the lenient check refuses the arguments too, its error is reported, not the strict one.
            coerced = self._arguments.validate_json(text, strict=False)
            if lenient or all(_is_whole_number(problem) for problem in strict.errors(include_url=False)):
                return coerced
            raise strict from None

    @cached_property
    def _schema(self) -> dict[str, Any]:
        parameters = self._arguments.json_schema()
        parameters.pop("title", None)
        for field in parameters.get("properties", {}).values():
            field.pop("title", None)
        parameters.setdefault("properties", {})
        parameters["required"] = parameters.get("required", [])
        parameters["additionalProperties"] = False
        for parameter in self._parameters:
            if parameter.default is not parameter.empty:
                parameters["properties"][parameter.name]["default"] = parameter.default
        summary, descriptions = _docstring(self.function)
        for name, text in descriptions.items():
            if name in parameters["properties"]:
                parameters["properties"][name].setdefault("description", text)
        return {
            "type": "function",
            "name": self.name,
            "description": summary,
            "parameters": parameters,
            "strict": _is_strict(parameters),
        }

    @cached_property
    def _arguments(self) -> TypeAdapter[dict[str, Any]]:
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in self._parameters:
            hint = hints.get(parameter.name, Any)
            fields[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
        return TypeAdapter(TypedDict(self.name, fields))  # type: ignore[operator]

    @property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())[1:]


def _is_whole_number(problem: ErrorDetails) -> bool:
    """Whether the problem is only a whole number written as 2.0, which JSON Schema counts as an integer."""
    return problem["type"] == "int_type" and isinstance(problem["input"], float)


def _is_strict(schema: Any) -> bool:
    """Whether providers accept a schema as strict: all properties are typed and required, and no others allowed."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        names = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(names):
            return False
        if any(_TYPING.isdisjoint(field) for field in names.values()):
            return False
    return all(_is_strict(part) for key, part in schema.items() if key not in _CONTENT)


def not_found() -> ToolError:
    """The text that a model sees when it calls a tool that is not offered."""
    return ToolError('{"detail":"Not Found"}', "unknown_tool")


def error_text(message: str, kind: ToolErrorKind = "raised", raised: Raised | None = None) -> ToolError:
    """The text that a model sees when a call failed."""
    return ToolError(encode({"error": message}).decode(), kind, raised)


def _arguments_error(error: ValidationError) -> ToolError:
    problems = error.errors(include_url=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        return error_text(f"Invalid tool call arguments: {problems[0]['msg']}", "bad_arguments")
    detail = [{"type": p["type"], "loc": ["body", *p["loc"]], "msg": p["msg"], "input": p["input"]} for p in problems]
    return ToolError(encode({"detail": detail}).decode(), "bad_arguments")


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description of a tool, and of its parameters where the docstring has an `Args:` section."""
    summary, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    descriptions = {}
    for line in rest.splitlines():
        if match := _ARGUMENT_LINE.match(line):
            descriptions[match[1]] = match[2]
        elif not line.startswith(" "):
            break
    return summary.strip(), descriptions
