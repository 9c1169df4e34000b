"""JSON schemas: whether a value fits one, and a stricter reading of it for answers that must be complete.

The dialect is 2020-12 without checks of `format`, as OpenAPI 3.1 has it. A reference to another document is never
fetched. Patterns are run by `re`, which can take for ever: call this in a child process (`ludus.runtime.processes`),
unless the schema is your own or `is_tree` says that it is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ludus.errors import missing_extra
from ludus.graders.formats import described

try:
    from jsonschema import Draft202012Validator, SchemaError, ValidationError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import extend
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
except ImportError as error:
    raise missing_extra("jsonschema", "structured") from error

Schema = dict[str, Any] | bool

#: Keywords by what they hold: schemas of parts of a value (one, a mapping or a list), or further demands on all of it.
_PART = ("items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
_PARTS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_PARTS_IN_ORDER = ("prefixItems",)
_WHOLE = ("then", "else")
_WHOLE_BY_NAME = ("dependentSchemas",)
_WHOLE_IN_ORDER = ("allOf", "anyOf", "oneOf")

#: Past this length of an instance its error is told without showing it.
_LARGE = 20_000


def strict(schema: Any) -> Any:
    """The schema with every object closed: each property it names is required, and no other is allowed.

    Demands that several schemas make on one object (`anyOf` and the like) are closed together, around what any of them
    names. Conditions (`if`, `not`) keep their meaning.
    """
    if not isinstance(schema, dict):
        return schema
    closed = _complete(schema)
    if any(_names_properties(branch) for branch in _branches(schema)):
        closed.pop("additionalProperties", None)
        closed["unevaluatedProperties"] = False
    elif isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def strict_without_lists(schema: Any) -> Any:
    """As `strict`, but blind: whatever holds `properties` is closed by itself, and nothing inside a list is."""
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict_without_lists(value) for key, value in schema.items()}
    if "properties" in closed:
        closed["required"] = list(schema["properties"])
        closed["additionalProperties"] = False
    return closed


def _complete(schema: Any) -> Any:
    """A copy that requires what it names, with its parts made strict and its branches completed too."""
    if not isinstance(schema, dict):
        return schema
    result = {key: _complete_keyword(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        result["required"] = list(schema["properties"])
    return result


def _complete_keyword(key: str, value: Any) -> Any:
    if key in _PART:
        return strict(value)
    if key in _WHOLE:
        return _complete(value)
    if isinstance(value, dict) and key in (*_PARTS_BY_NAME, *_WHOLE_BY_NAME):
        inner = strict if key in _PARTS_BY_NAME else _complete
        return {name: inner(part) for name, part in value.items()}
    if isinstance(value, list) and key in (*_PARTS_IN_ORDER, *_WHOLE_IN_ORDER):
        inner = strict if key in _PARTS_IN_ORDER else _complete
        return [inner(part) for part in value]
    return value


def _branches(schema: dict[str, Any]) -> Iterator[Any]:
    yield from (schema[key] for key in _WHOLE if key in schema)
    for key in _WHOLE_IN_ORDER:
        yield from schema[key] if isinstance(schema.get(key), list) else ()
    for key in _WHOLE_BY_NAME:
        yield from schema[key].values() if isinstance(schema.get(key), dict) else ()


def _names_properties(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return isinstance(schema.get("properties"), dict) or any(map(_names_properties, _branches(schema)))


class Validator:
    """A schema, checked once, that says what is wrong with values.

    Validator({"type": "integer"}).problem("7")   # "ValidationError: '7' is not of type 'integer' ..."
    """

    def __init__(self, schema: Any, *, openapi: bool = False) -> None:
        """With `openapi`, a `discriminator` picks the one schema that counts."""
        self.schema_problem = None if _plain(schema) else _schema_problem(schema)
        if self.schema_problem is None:
            kind = _OpenAPI if openapi else Draft202012Validator
            self._validator = kind(schema, registry=REGISTRY)

    def problem(self, value: Any) -> str | None:
        """What is most wrong with the value; None when it fits. A schema that is wrong itself fits nothing."""
        if self.schema_problem is not None:
            return self.schema_problem
        try:
            error = best_match(self._validator.iter_errors(value))
        except Exception as error:  # such as a reference to nowhere, or one that never ends
            return described(error)
        return None if error is None else _told(error)


def _schema_problem(schema: Any) -> str | None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return _told(error)
    except Exception as error:  # such as a pattern that is too much for `re`
        return described(error)
    return None


def _told(error: ValidationError | SchemaError) -> str:
    """An error as the library prints it, sparing it what would not be seen: message, schema and instance, in order."""
    if len(error.message) < 200 and len(repr(error.schema)) > 200:
        error.instance = None
        error.schema = _beginning(error.schema)
    elif len(error.message) >= 200 or len(repr(error.instance)) > _LARGE:
        return f"{type(error).__name__}: {error.message[:200]}"
    return described(error)


def _beginning(value: Any, room: int = 600) -> Any:
    """As much of a schema as fills the room: printing all of it takes longer than using it."""
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, part in value.items():
        kept[key] = _beginning(part, room)
        room -= len(repr(key)) + len(repr(kept[key]))
        if room < 0:
            break
    return kept


def _discriminated(keyword: str) -> Callable[..., Iterator[ValidationError]]:
    undiscriminated = Draft202012Validator.VALIDATORS[keyword]

    def check(validator: Any, branches: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if "discriminator" not in schema:
            yield from undiscriminated(validator, branches, instance, schema)
            return
        name = schema["discriminator"]["propertyName"]
        value = instance.get(name)
        if not value:
            yield ValidationError(f"{instance!r} has no {name!r} to discriminate by")
            return
        mapping = schema["discriminator"].get("mapping", {})
        yield from validator.descend(instance, {"$ref": mapping.get(value) or f"#/components/schemas/{value}"})

    return check


_OpenAPI: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: _discriminated(name) for name in _WHOLE_IN_ORDER}
)


def is_tree(schema: Any) -> bool:
    """Whether a schema looks at each part of a value once: no references, patterns or combinations.

    Such a schema takes time in proportion to the value, so that it needs no other process to be safe.
    """
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    parts = [schema[key] for key in _PART if key in schema]
    named, ordered = schema.get("properties", {}), schema.get("prefixItems", [])
    if not isinstance(named, dict) or not isinstance(ordered, list):
        return False
    return _MORE_THAN_ONCE.isdisjoint(schema) and all(map(is_tree, [*parts, *named.values(), *ordered]))


#: Keywords that look at a value again, or for as long as they like.
_MORE_THAN_ONCE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id", "pattern", "patternProperties", "propertyNames"}
    | {"uniqueItems", "contains", "not", "if", "then", "else", "allOf", "anyOf", "oneOf"}
    | {"dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties"}
)

# The metaschema takes milliseconds to say what most schemas show at a glance.

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _plain(schema: Any) -> bool:
    """Whether a schema is surely well-formed. False only means that it takes a closer look."""
    if isinstance(schema, bool):
        return True
    return isinstance(schema, dict) and all(
        (test := _SHAPES.get(key)) is not None and test(value) for key, value in schema.items()
    )


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _plain_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_plain, value.values()))


def _plain_in_order(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_plain, value))


def _unique_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value) and len(set(value)) == len(value)


def _types(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _unique_texts(value) and bool(value) and _TYPES.issuperset(value)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


_SHAPES: dict[str, Callable[[Any], bool]] = {
    "type": _types,
    "required": _unique_texts,
    "enum": _is(list),
    "const": lambda value: True,
    "default": lambda value: True,
    "multipleOf": lambda value: type(value) in (int, float) and value > 0,
    **dict.fromkeys(("title", "description", "format", "$comment"), _is(str)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is(int, float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is(bool)),
    **dict.fromkeys(("properties", "$defs", "definitions", "dependentSchemas"), _plain_by_name),
    **dict.fromkeys(("items", "additionalProperties", "contains", "unevaluatedProperties", "not"), _plain),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _plain_in_order),
    "examples": _is(list),
    "nullable": lambda value: True,
    "$ref": lambda value: isinstance(value, str) and re.fullmatch(r"#(?:/[\w$.-]+)*", value) is not None,
}
