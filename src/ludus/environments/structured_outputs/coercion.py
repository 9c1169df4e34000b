"""Converts the texts of XML elements and CSV cells to the types that a JSON schema asks for.

A text that does not fit the asked type stays a text, so that the schema's error can show the text. Each format has two
functions. The `coerced_` one follows references and combinations of schemas. The `plainly_coerced_` one reads nothing
but `type`. With a list of types, an XML element stays a text, as in NeMo Gym; a CSV cell gets the first that fits.
"""

from __future__ import annotations

import re
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_PYTHON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

Options = list[dict[str, Any]]


def coerced_xml(value: Any, schema: Any, root: Any = None, *, alone: bool = False) -> Any:
    """The value of an XML document, with texts, lists and empty elements converted as the schema asks.

    coerced_xml({"n": "5"}, {"properties": {"n": {"type": "integer"}}})   # {'n': 5}

    `alone` says that the caller has just wrapped the value in a list; the value is not wrapped a second time.
    """
    root = schema if root is None else root
    options = _options(schema, root, ("allOf",))
    types = _types([option for option in options if not isinstance(option.get("type"), list)])
    if isinstance(value, list):
        return _coerced_items(value, options, root)
    if types == ["array"] and not alone:
        values = _unwrapped(value, options)
        return _coerced_items(values, options, root, alone=len(values) == 1 and values[0] is value)
    if isinstance(value, dict):
        return _coerced_mapping(value, options, root)
    if value is None:
        return _coerced_empty(types)
    return _coerced_text(value, types)


def coerced_csv(records: list[dict[Any, Any]], schema: Any) -> list[dict[Any, Any]]:
    """The records of a table, with cells converted as the schema asks. A missing cell stays None."""
    items = [item for option in _options(schema, schema) for item in _options(option.get("items"), schema)]
    wanted: dict[Any, list[str]] = {}
    for item in items:
        for name, part in (item.get("properties") or {}).items():
            wanted.setdefault(name, []).extend(_types(_options(part, schema)))
    return [{name: _coerced_cell(cell, wanted.get(name, [])) for name, cell in record.items()} for record in records]


def _options(schema: Any, root: Any, combined: tuple[str, ...] = ("anyOf", "oneOf", "allOf")) -> Options:
    """The schema, and every schema that it refers to or combines, in breadth-first order."""
    options: Options = []
    queue, seen = [schema], set()
    while queue:
        option = queue.pop(0)
        if not isinstance(option, dict) or id(option) in seen:
            continue
        seen.add(id(option))
        options.append(option)
        if isinstance(option.get("$ref"), str):
            queue.append(_resolved(option["$ref"], root))
        for key in combined:
            queue += option[key] if isinstance(option.get(key), list) else ()
    return options


def _resolved(reference: str, root: Any) -> Any:
    """The schema that a `#/...` reference points to; None for other references."""
    if not reference.startswith("#"):
        return None
    node = root
    for part in reference[1:].split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def _types(options: Options) -> list[str]:
    """The types that schemas ask for, each once, in the order of the schemas."""
    return list(dict.fromkeys(name for option in options for name in _types_of(option)))


def _types_of(schema: dict[str, Any]) -> list[str]:
    asked = schema.get("type")
    if asked is not None:
        return [name for name in (asked if isinstance(asked, list) else [asked]) if isinstance(name, str)]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return [_PYTHON_TYPES[type(value)] for value in values if type(value) in _PYTHON_TYPES]
    return ["object"] if "properties" in schema else []


def _coerced_mapping(value: dict[str, Any], options: Options, root: Any) -> dict[str, Any]:
    """The mapping, converted by the schema whose properties name most of the mapping's keys."""

    def known_keys(option: dict[str, Any]) -> int:
        return sum(key in (option.get("properties") or ()) for key in value)

    chosen = max(options, key=known_keys, default={})
    properties, others = chosen.get("properties") or {}, chosen.get("additionalProperties")
    return {key: coerced_xml(part, properties.get(key, others), root) for key, part in value.items()}


def _unwrapped(value: Any, options: Options) -> list[Any]:
    """The items of a list: the children of a wrapping element, or the value itself as the only item."""
    if value is None:
        return []
    if not isinstance(value, dict) or len(value) != 1:
        return [value]
    ((key, inner),) = value.items()
    items: Any = next((option["items"] for option in options if isinstance(option.get("items"), dict)), {})
    if key in (items.get("properties") or ()):
        return [value]
    return inner if isinstance(inner, list) else [inner]


def _coerced_items(values: list[Any], options: Options, root: Any, alone: bool = False) -> list[Any]:
    items = next((option["items"] for option in options if "items" in option), None)
    return [coerced_xml(value, items, root, alone=alone) for value in values]


def _coerced_empty(types: list[str]) -> Any:
    if "null" in types:
        return None
    if "string" in types:
        return ""
    return {} if types == ["object"] else None


def _coerced_cell(cell: Any, types: list[str]) -> Any:
    """A cell as the first of the types that fits. Infinities and NaN are numbers: tables of programs hold them."""
    if not isinstance(cell, str):
        return cell
    if cell == "" and "null" in types:
        return None
    for name in types:
        if name == "string":
            return cell
        if name == "number" and _INFINITE.fullmatch(cell.strip()):
            return float(cell)
        coerced = _coerced_text(cell, [name])
        if not isinstance(coerced, str):
            return coerced
    return cell


def _coerced_text(text: str, types: list[str]) -> Any:
    stripped = text.strip()
    if "string" in types:
        return text
    if "integer" in types and _INTEGER.fullmatch(stripped):
        return int(stripped)
    if "number" in types and _NUMBER.fullmatch(stripped):
        return float(stripped)
    if "boolean" in types:
        return _BOOLEANS.get(stripped.lower(), text)
    return text


def plainly_coerced_xml(value: Any, schema: Any) -> Any:
    """The value of an XML document, converted only where the schema's `type` is a single type."""
    wanted = schema.get("type") if isinstance(schema, dict) else None
    if wanted == "array":
        values = value if isinstance(value, list) else _unwrapped(value, [])
        return [plainly_coerced_xml(item, schema.get("items")) for item in values]
    if isinstance(value, dict):
        properties = (schema.get("properties") if isinstance(schema, dict) else None) or {}
        return {key: plainly_coerced_xml(part, properties.get(key)) for key, part in value.items()}
    if value is None:
        return "" if wanted == "string" else None
    return _converted(value, [wanted])


def plainly_coerced_csv(records: list[dict[Any, Any]], schema: Any) -> list[dict[Any, Any]]:
    """The records of a table, converted by the types in `items.properties` alone."""
    items = schema.get("items") if isinstance(schema, dict) else None
    properties = (items.get("properties") if isinstance(items, dict) else None) or {}
    return [{name: _plain_cell(cell, properties.get(name)) for name, cell in record.items()} for record in records]


def _plain_cell(cell: Any, schema: Any) -> Any:
    wanted = schema.get("type") if isinstance(schema, dict) else None
    types = wanted if isinstance(wanted, list) else [wanted]
    return None if cell == "" and "null" in types else _converted(cell, types)


def _converted(value: Any, types: list[Any]) -> Any:
    """The text converted to the first type that Python's `int` and `float` accept."""
    for name in types if isinstance(value, str) else ():
        try:
            if name == "integer":
                return int(value)
            if name == "number":
                return float(value)
        except ValueError:
            continue
        if name == "string":
            return value
        if name == "boolean" and value.strip().lower() in _BOOLEANS:
            return _BOOLEANS[value.strip().lower()]
    return value
