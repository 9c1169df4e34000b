"""Settings: `part.key=value` from the command line or YAML files, checked against the class that declares them."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from ludus.errors import AuthorError, UserError, cannot_read, did_you_mean
from ludus.runtime.imports import describe
from ludus.runtime.redaction import masked
from ludus.runtime.wording import describe_errors
from ludus.runtime.yaml_mistakes import yaml_mistake

M = TypeVar("M", bound=BaseModel)

#: The largest YAML file, and the most values after its aliases are expanded.
MAX_YAML, _MAX_NODES = 4 * 1024 * 1024, 100_000
_MAX_CACHED = 1 << 16  # the longest text whose content is kept


def checked(model: type[M], values: dict[str, Any], part: str) -> M:
    """Validate the values with the model. A mistake is a UserError of one line that names the key.

    The key `retries.server` sets one field of the nested model `retries`; its other fields keep their values.
    """
    values = _nested(model, values, part)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
        # A misspelled required setting gives two errors, missing and unknown: report the unknown one.
        first = next((problem for problem in errors if problem["type"] == "extra_forbidden"), errors[0])
        key = _key(first, values)
        if first["type"] == "extra_forbidden":
            raise _unknown(model, part, key) from error
        same = [problem for problem in errors if _key(problem, values) == key]
        hint = "Put it in quotes" if first["type"] == "string_type" and type(first["input"]) is float else ""
        raise UserError(describe_errors(f"{part}.{key}", same, masked(first.get("input"))), hint) from error
    except UserError:
        raise
    except Exception as error:  # raised by an author's validator
        raise AuthorError(f"{part}: {describe(error)}") from error


def _nested(model: type[BaseModel], values: dict[str, Any], part: str) -> dict[str, Any]:
    """The values with each key `field.name` moved into the nested model `field`. Other keys are left to the check."""
    nested = {key: value for key, value in values.items() if _inner(model, key) is None}
    for key, value in values.items():
        inner = _inner(model, key)
        if inner is None:
            continue
        field, _, name = key.partition(".")
        before = nested.get(field, model.model_fields[field].get_default(call_default_factory=True))
        if isinstance(before, BaseModel):
            before = before.model_dump()
        if before is PydanticUndefined:
            before = None
        if not isinstance(before, (dict, NoneType)):
            raise UserError(f"{part}.{field} and {part}.{key} are both set", "Leave one of them out")
        nested[field] = _nested(inner, {**(before or {}), name: value}, f"{part}.{field}")
    return nested


def _inner(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The nested model of a key such as `retries.server`."""
    field, dot, _ = key.partition(".") if isinstance(key, str) else ("", "", "")
    declared = model.model_fields.get(field) if dot else None
    if declared is None or key in model.model_fields:
        return None
    union = get_origin(declared.annotation) in (Union, UnionType)
    kinds = get_args(declared.annotation) if union else (declared.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _unknown(model: type[BaseModel], part: str, key: str) -> UserError:
    """The error for an unknown key, with similar settings of the nested model that it was meant for."""
    while (inner := _inner(model, key)) is not None:
        field, _, key = key.partition(".")
        model, part = inner, f"{part}.{field}"
    return UserError(f"{part} has no setting {key}", did_you_mean(key, _names(model, "." in key)))


def _names(model: type[BaseModel], nested: bool) -> list[str]:
    """The names of a model's settings; `nested` adds those of its nested models."""
    names = list(model.model_fields)
    for name in list(names) if nested else ():
        if (inner := _inner(model, f"{name}.")) is not None:
            names += [f"{name}.{inner_name}" for inner_name in inner.model_fields]
    return names


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Read `key=value` pairs; values are YAML, so `4`, `true`, `[a, b]` and plain text mean what they look like."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            example = f"{assignment}=VALUE" if "." in assignment else "agent.max_steps=4 or --set model.temperature=0.7"
            raise UserError(f"--set {assignment} must look like part.key=value", f"Example: --set {example}")
        try:
            settings[key.strip()] = yaml.safe_load(value)
        except (ValueError, yaml.YAMLError):  # PyYAML raises ValueError for dates such as 2020-13-45
            settings[key.strip()] = value
        except RecursionError as error:
            raise UserError(f"--set {key.strip()}: {value[:20]}... is nested too deep") from error
    return settings


def read_yaml(path: Path, what: str = "") -> Any:
    """The content of a YAML file. Errors put `what` before its path."""
    name = f"{what} {path}".strip()
    try:
        with path.open("rb") as file:
            content = file.read(MAX_YAML + 1)
        if len(content) > MAX_YAML:
            raise UserError(f"{name} is larger than {MAX_YAML:,} bytes", "Name a YAML file of settings")
        text = content.decode()
        if "*" in text:
            _refuse_many_aliases(name, yaml.compose(text, yaml.SafeLoader))
        return deepcopy(_parsed(text)) if len(text) < _MAX_CACHED else yaml.safe_load(text)
    except OSError as error:
        raise cannot_read(name, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8: {error.reason} at byte {error.start}", "Save it as UTF-8") from error
    except RecursionError as error:
        raise UserError(f"{name} is nested too deep") from error
    except (ValueError, yaml.YAMLError) as error:
        problem, hint = yaml_mistake(error, text)
        raise UserError(f"{name} is not valid YAML: {problem}", hint) from error


@lru_cache(maxsize=128)
def _parsed(text: str) -> Any:
    """The content of a YAML file. Environments are loaded again and again, and PyYAML takes milliseconds for each."""
    return yaml.safe_load(text)


def _refuse_many_aliases(name: str, root: yaml.Node | None) -> None:
    """Refuse a file if an alias (`*name`) contains itself, or if the aliases expand to too many values."""
    sizes: dict[int, int | None] = {}  # None while the node is being counted

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            known = sizes[id(node)]
            if known is None:
                raise UserError(f"{name}: an alias in it contains itself", "Write the value out")
            return known
        sizes[id(node)] = None
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        pairs = isinstance(node, yaml.MappingNode)
        total = 1 + sum(size(child[0]) + size(child[1]) if pairs else size(child) for child in children)
        sizes[id(node)] = total
        return total

    if root is not None and size(root) > _MAX_NODES:
        raise UserError(f"{name}: its aliases stand for more than {_MAX_NODES:,} values", "Write the values out")


def _key(error: ErrorDetails, values: Any) -> str:
    """The key of an error: its location without the names of union branches."""
    steps = []
    for step in error["loc"]:
        try:
            values = values[step]
        except (LookupError, TypeError):
            if error["type"] != "missing" or step != error["loc"][-1]:
                continue
        steps.append(str(step))
    return ".".join(steps)
