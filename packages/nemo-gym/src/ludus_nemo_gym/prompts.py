"""NeMo Gym's prompt configs are prompt templates of Ludus: where their files are found, and how a file is rendered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.prompt import PromptTemplate, load_prompt
from ludus.runtime.encoding import json_error
from ludus.store.drafts import draft
from ludus.store.lines import Source
from ludus_nemo_gym.search_paths import find_file

Row = dict[str, Any]


def read_prompt(name: str) -> PromptTemplate:
    """Read a template. Its path is looked for like that of a configuration file."""
    path = find_file(name)
    if path is None:
        raise UserError(f"there is no prompt config {name}", "Name a YAML file with the keys user and system")
    return load_prompt(path)


def with_prompt(row: Row, template: PromptTemplate, where: str) -> Row:
    """The row with a prompt. A row that has one is returned unchanged."""
    try:
        return template.fill(row)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def render_file(source: Path, prompt: str, target: Path) -> tuple[int, int]:
    """Write the rows of a file with prompts. Returns how many got one, and how many had one already."""
    template, counts = read_prompt(prompt), [0, 0]
    with Source(source) as opened, draft(target, "Choose another +output_jsonl_fpath") as file:
        for number, line in opened.lines:
            where = f"{source}:{number}"
            row = _object(line, where)
            done = with_prompt(row, template, where)
            counts[done is row] += 1
            file.write(orjson.dumps(done) + b"\n")
    return counts[0], counts[1]


def _object(line: bytes, where: str) -> Row:
    hint = "Each line must hold one JSON object"
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: {json_error(error)}", hint) from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: the row is not an object", hint)
    return row
