"""Prompts from a template: a YAML file with `user` and, optionally, `system`.

A template is written by the author of a server, so all of Python's format language works in it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from nemo_gym.path_utils import find_path


class PromptConfig(BaseModel):
    """A template: `{field}` is a field of the row, `{{` is a brace."""

    user: str
    system: str | None = None


def load_prompt_config(path: str) -> PromptConfig:
    """Read a template. A relative path is searched in the roots; a file is read once."""
    file = find_path(path)
    if file is None:
        raise FileNotFoundError(f"there is no prompt config {path}: name a YAML file with the keys user and system")
    return _read(file.resolve())


@functools.cache
def _read(file: Path) -> PromptConfig:
    return PromptConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


load_prompt_config.cache_clear = _read.cache_clear  # type: ignore[attr-defined]  # as of a cached function


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages for a row, the system message first. A missing field is a `KeyError` that lists the row's fields."""
    templates = {"system": prompt_config.system, "user": prompt_config.user}
    try:
        return [
            {"role": role, "content": template.format_map(row)}
            for role, template in templates.items()
            if template is not None
        ]
    except KeyError as error:
        fields = ", ".join(sorted(map(str, row)))
        raise KeyError(f"the prompt needs the field {error}, and the row has only: {fields}") from error


def apply_prompt_to_row(row: Mapping[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """A copy of the row with `responses_create_params.input` made from the template."""
    parameters = {**(row.get("responses_create_params") or {}), "input": fill_prompt(prompt_config, row)}
    return {**row, "responses_create_params": parameters}
