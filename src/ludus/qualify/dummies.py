"""Meaningless values that fit a JSON schema, as arguments of pointless tool calls."""

from __future__ import annotations

from typing import Any

_DEPTH = 12


def dummy(schema: Any, *, depth: int = 0) -> Any:
    """The simplest value that fits a schema, with every declared property; None if the schema names no type."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return dummy(schema[key][0], depth=depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties") or {}
        return {name: dummy(part, depth=depth + 1) for name, part in properties.items()}
    if kind == "array":
        return [dummy(schema.get("items"), depth=depth + 1) for _ in range(max(1, schema.get("minItems", 1)))]
    return _scalar(kind, schema)


def _scalar(kind: Any, schema: dict[str, Any]) -> Any:
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return int(least) if kind == "integer" else least
    if kind == "string":
        return "x" * max(1, schema.get("minLength", 1))
    return True if kind == "boolean" else None
