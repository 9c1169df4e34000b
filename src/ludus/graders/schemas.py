"""Checks values against JSON schemas, and makes schemas strict for answers that must be complete.

The dialect is 2020-12 without checks of `format`, as in OpenAPI 3.1. A reference to another document is never fetched.
`re` runs the patterns and can take for ever, so validate in a child process (`ludus.runtime.processes`) unless the
schema is your own or `is_tree(schema)`.
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

#: Keywords that hold schemas (one, a mapping or a list), either for parts of a value or for the whole value.
_PART = ("items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
_PARTS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_PARTS_IN_ORDER = ("prefixItems",)
_WHOLE = ("then", "else")
_WHOLE_BY_NAME = ("dependentSchemas",)
_WHOLE_IN_ORDER = ("allOf", "anyOf", "oneOf")

#: An error's text leaves out an instance that is longer than this.
_LARGE_INSTANCE = 20_000


def strict(schema: Any) -> Any:
    """The schema with every object closed: all named properties are required, and no others are allowed.

    Several schemas for one object (`anyOf` and the like) are closed together: the object may have the properties that
    any of them names. Conditions (`if`, `not`) keep their meaning.
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
    """Like `strict`, but closes each mapping with `properties` by itself, and changes nothing inside a list."""
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict_without_lists(value) for key, value in schema.items()}
    if "properties" in closed:
        closed["required"] = list(schema["properties"])
        closed["additionalProperties"] = False
    return closed


def _complete(schema: Any) -> Any:
    """A copy that requires all named properties, in its branches too, with the schemas of parts made strict."""
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
    """A schema that is checked once and then validates values.

    Validator({"type": "integer"}).problem("7")   # "ValidationError: '7' is not of type 'integer' ..."
    """

    def __init__(self, schema: Any, *, openapi: bool = False) -> None:
        """With `openapi`, a `discriminator` picks the schema that validates the value."""
        self.schema_problem = None if _well_formed(schema) else _schema_problem(schema)
        if self.schema_problem is None:
            kind = _OpenAPI if openapi else Draft202012Validator
            self._validator = kind(schema, registry=REGISTRY)

    def problem(self, value: Any) -> str | None:
        """The most relevant error of the value, None if the value fits. No value fits an invalid schema."""
        if self.schema_problem is not None:
            return self.schema_problem
        try:
            error = best_match(self._validator.iter_errors(value))
        except Exception as error:  # such as a reference that cannot be resolved, or that refers to itself
            return described(error)
        return None if error is None else _error_text(error)


def _schema_problem(schema: Any) -> str | None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return _error_text(error)
    except Exception as error:  # such as a pattern that `re` cannot compile
        return described(error)
    return None


def _error_text(error: ValidationError | SchemaError) -> str:
    """The library's text, without printing the parts (message, schema, instance) that `described` would cut off."""
    if len(error.message) < 200 and len(repr(error.schema)) > 200:
        error.instance = None
        error.schema = _beginning(error.schema)
    elif len(error.message) >= 200 or len(repr(error.instance)) > _LARGE_INSTANCE:
        return f"{type(error).__name__}: {error.message[:200]}"
    return described(error)


def _beginning(value: Any, room: int = 600) -> Any:
    """The beginning of a schema, about `room` characters long. Printing a whole schema is slower than validating."""
    if not isinstance(value, dict):
        return value
    shown = {}
    for key, part in value.items():
        shown[key] = _beginning(part, room)
        room -= len(repr(key)) + len(repr(shown[key]))
        if room < 0:
            break
    return shown


def _discriminated(keyword: str) -> Callable[..., Iterator[ValidationError]]:
    without_discriminator = Draft202012Validator.VALIDATORS[keyword]

    def check(validator: Any, branches: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if "discriminator" not in schema:
            yield from without_discriminator(validator, branches, instance, schema)
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
    """Whether a schema checks each part of a value once: no references, patterns or combinations.

    Such a schema takes time in proportion to the value, so it is safe to use in this process.
    """
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    parts = [schema[key] for key in _PART if key in schema]
    named, ordered = schema.get("properties", {}), schema.get("prefixItems", [])
    if not isinstance(named, dict) or not isinstance(ordered, list):
        return False
    return _COSTLY_KEYWORDS.isdisjoint(schema) and all(map(is_tree, [*parts, *named.values(), *ordered]))


#: Keywords that check a value more than once, or take unbounded time.
_COSTLY_KEYWORDS = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id", "pattern", "patternProperties", "propertyNames"}
    | {"uniqueItems", "contains", "not", "if", "then", "else", "allOf", "anyOf", "oneOf"}
    | {"dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties"}
)

# `_well_formed` is a fast check for common schemas: the metaschema takes milliseconds.

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _well_formed(schema: Any) -> bool:
    """Whether a schema is certainly valid. False means that the metaschema must decide."""
    if isinstance(schema, bool):
        return True
    return isinstance(schema, dict) and all(
        (test := _KEYWORD_TESTS.get(key)) is not None and test(value) for key, value in schema.items()
    )


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _mapping_of_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_well_formed, value.values()))


def _list_of_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_well_formed, value))


def _unique_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value) and len(set(value)) == len(value)


def _types(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _unique_texts(value) and bool(value) and _TYPES.issuperset(value)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


_KEYWORD_TESTS: dict[str, Callable[[Any], bool]] = {
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
    **dict.fromkeys(("properties", "$defs", "definitions", "dependentSchemas"), _mapping_of_schemas),
    **dict.fromkeys(("items", "additionalProperties", "contains", "unevaluatedProperties", "not"), _well_formed),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _list_of_schemas),
    "examples": _is(list),
    "nullable": lambda value: True,
    "$ref": lambda value: isinstance(value, str) and re.fullmatch(r"#(?:/[\w$.-]+)*", value) is not None,
}
