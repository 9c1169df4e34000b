"""Anthropic's tools that the client runs and only the provider describes, as functions that any model can call.

A request names such a tool by its type and version, such as `bash_20250124`, without a schema. A call of the function
is the `tool_use` block that the client expects.
"""

from __future__ import annotations

import re
from typing import Any

_VERSIONED = re.compile(r"(bash|text_editor|memory)_(\d{8})")
#: The first versions of the text editor that cannot undo, and that call the text of an insertion `insert_text`.
_WITHOUT_UNDO, _WITH_INSERT_TEXT = "20250429", "20250728"

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}


def client_function(tool: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of the function for a tool that the client runs; None for a tool of another type."""
    match = _VERSIONED.fullmatch(str(tool.get("type")))
    if match is None:
        return None
    kind, version = match.groups()
    if kind == "bash":
        about = "Run a command in a bash session that stays open between calls. `restart` begins a new session."
        return _function(about, {"command": _TEXT, "restart": {"type": "boolean"}}, [])
    file_fields = {
        "path": _TEXT,
        "file_text": {**_TEXT, "description": "create: the content of the new file"},
        "old_str": {**_TEXT, "description": "str_replace: the text to replace, which must occur exactly once"},
        "new_str": {**_TEXT, "description": "str_replace: the new text"},
        "insert_line": {**_WHOLE, "description": "insert: the line after which to insert; 0 for the beginning"},
        "view_range": {
            "type": "array",
            "items": _WHOLE,
            "description": "view: the first and the last line; -1: the end",
        },
    }
    inserted = {"insert_text": {**_TEXT, "description": "insert: the text to insert"}}
    if kind == "memory":
        commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
        names = {"old_path": _TEXT, "new_path": _TEXT}
        about = "Read and change the files below /memories, which last longer than this conversation."
        return _function(about, {"command": _one_of(commands), **file_fields, **inserted, **names}, ["command"])
    commands = ["view", "create", "str_replace", "insert", *(["undo_edit"] if version < _WITHOUT_UNDO else [])]
    if version < _WITH_INSERT_TEXT:
        inserted = {"new_str": {**_TEXT, "description": "str_replace: the new text; insert: the text to insert"}}
    about = "View, create and edit text files. `view` of a folder lists it."
    return _function(about, {"command": _one_of(commands), **file_fields, **inserted}, ["command", "path"])


def _one_of(values: list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": values}


def _function(description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"description": description, "parameters": parameters}
