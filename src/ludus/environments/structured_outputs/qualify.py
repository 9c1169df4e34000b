"""How qualification answers: with dummy values that fit the schema, since only the shape is graded."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape

from ludus.qualify.dummies import dummy

expected_exploits = {
    "tool_spam/once": (0.3, "if one call is asked for, one call whose arguments fit is right"),
}


def oracle(task: Any) -> Any:
    """A document that fits, or None if the dummy values cannot fit the schema."""
    value = _value(task)
    return None if value is None else _written(task, value)


def preserving(task: Any) -> dict[str, Any]:
    """The same content in another layout."""
    value = _value(task)
    if value is None:
        return {}
    if task.response_mode == "tool_call":
        return {"with_words": [{"text": "Done.", **_written(task, value)[0]}]}
    before = "" if task.schema_type == "csv" else "\n\n"  # the first line of a table is its header
    scripts = {"blank_lines": f"{before}{_written(task, value)}\n\n"}
    if task.schema_type in ("json", "yaml"):
        scripts["indented"] = json.dumps(value, indent=4)
        scripts["reversed"] = (
            json.dumps(dict(reversed(value.items()))) if isinstance(value, dict) else json.dumps(value)
        )
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Documents of another shape."""
    value = _value(task)
    if value is None:
        return {}
    record = value[0] if isinstance(value, list) and value else value
    wrong: dict[str, Any] = {"empty_object": {}, "null": None, "text": "x"}
    if not isinstance(value, list) or json.loads(task.schema_str).get("minItems"):
        wrong["empty_list"] = []
    if isinstance(record, dict) and record:
        names = list(record)
        wrong |= {
            "one_missing": {name: record[name] for name in names[1:]},
            "one_more": {**record, "unexpected": 1},
            "renamed": {f"{name}_": part for name, part in record.items()},
            "nested": {"document": record},
        }
        if isinstance(value, list):
            wrong |= {name: [wrong[name]] for name in ("one_missing", "one_more", "renamed")}
    scripts = {name: _written(task, document) for name, document in wrong.items()}
    if task.response_mode == "tool_call":
        call = _written(task, value)[0]
        other = {"call": "other_tool", "arguments": call["arguments"]}
        return scripts | {
            "twice": [{"calls": [{"name": call["call"], "arguments": call["arguments"]}] * 2}],
            "tool": [other],
        }
    return scripts | {"with_prose": f"Here you are: {_written(task, value)}", "cut_off": _written(task, value)[:-3]}


def _value(task: Any) -> Any:
    schema = json.loads(task.schema_str)
    if "KTL" in str(task.responses_create_params["input"]):  # dummy values cannot match its pattern
        return {"sku": "KTL-0042", "quantity": 7}
    return None if any(word in task.schema_str for word in ('"pattern"', '"$ref"', '"format"')) else dummy(schema)


def _written(task: Any, value: Any) -> Any:
    if task.response_mode == "tool_call":
        payload = {task.tool_payload_key: value} if task.tool_payload_key else value
        return [
            {
                "call": task.tool_name or "submit",
                "arguments": payload if isinstance(payload, dict) else json.dumps(payload),
            }
        ]
    writers = {"xml": _xml, "toml": _toml, "csv": _csv}
    return writers.get(task.schema_type, json.dumps)(value)


def _xml(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(_element(name, part) for name, part in value.items())
    return "" if value is None else escape(json.dumps(value) if not isinstance(value, str) else value)


def _element(name: str, value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return "".join(f"<{name}>{_xml(part)}</{name}>" for part in parts)


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return _inline(value)
    return "\n".join(f"{json.dumps(name)} = {_inline(part)}" for name, part in value.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_inline(part)}" for name, part in value.items()) + "}"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else json.dumps(value)


def _csv(value: Any) -> str:
    records = [record for record in value if isinstance(record, dict)] if isinstance(value, list) else []
    if not records:
        return json.dumps(value)
    lines = [list(records[0]), *([_cell(part) for part in record.values()] for record in records)]
    return "\n".join(",".join(line) for line in lines)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
