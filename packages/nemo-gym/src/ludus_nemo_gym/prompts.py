"""Prompt templates: a YAML file with `system` and `user` texts that builds the prompt of rows without one.

`{field}` is a field of the row, `{{` and `}}` are braces. Nothing else of Python's format language is supported: a
value of a row is inserted as it is, and is never read as a template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError, did_you_mean
from ludus.runtime.encoding import json_error
from ludus.store.drafts import draft
from ludus.store.lines import Source
from ludus_nemo_gym.search_paths import find_file
from ludus_nemo_gym.trees import read_yaml

Row = dict[str, Any]
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Prompt:
    """The texts of a template. `where` is its file, for error messages."""

    user: str
    system: str | None = None
    where: str = "the prompt config"

    def applied(self, row: Row, where: str) -> Row:
        """The row with a prompt. A row that has one is returned unchanged."""
        params = row.get("responses_create_params")
        params = params if isinstance(params, dict) else {}
        if params.get("input"):
            return row
        texts = [("system", self.system), ("user", self.user)]
        messages = [{"role": role, "content": self._filled(text, row, where)} for role, text in texts if text]
        return {**row, "responses_create_params": {**params, "input": messages}}

    def _filled(self, text: str, row: Row, where: str) -> str:
        def value(found: re.Match[str]) -> str:
            whole, name = found[0], found[1]
            if whole in ("{{", "}}"):
                return whole[0]
            if name is None:
                raise UserError(
                    f"{self.where}: a single {whole} is not allowed", f"Write {whole * 2} for the character"
                )
            if name not in row:
                raise UserError(
                    f"{where}: the row has no field {name}, which {self.where} uses", did_you_mean(name, row)
                )
            content = row[name]
            return content if isinstance(content, str) else orjson.dumps(content).decode()

        return _FIELD.sub(value, text)


def read_prompt(name: str) -> Prompt:
    """Read a template. Its path is looked for like that of a configuration file."""
    path = find_file(name)
    if path is None:
        raise UserError(f"there is no prompt config {name}", "Name a YAML file with the keys user and system")
    tree = read_yaml(path)
    unknown = sorted(tree.keys() - {"user", "system"})
    if unknown:
        raise UserError(f"{path} has no key {unknown[0]}", did_you_mean(unknown[0], ["user", "system"]))
    user, system = tree.get("user"), tree.get("system")
    if not isinstance(user, str) or not isinstance(system, str | None):
        raise UserError(
            f"{path}: user must be a text, and so must system if it is there", "Write user: 'Solve: {problem}'"
        )
    return Prompt(user, system, str(path))


def render_file(source: Path, prompt: str, target: Path) -> tuple[int, int]:
    """Write the rows of a file with prompts. Returns how many got one, and how many had one already."""
    template, counts = read_prompt(prompt), [0, 0]
    with Source(source) as opened, draft(target, "Choose another +output_jsonl_fpath") as file:
        for number, line in opened.lines:
            where = f"{source}:{number}"
            row = _object(line, where)
            done = template.applied(row, where)
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
