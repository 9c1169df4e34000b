"""Settings: `part.key=value` from the command line, checked against the class that declares them."""

from __future__ import annotations

from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from ludus.errors import UserError, did_you_mean

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], values: dict[str, Any], part: str) -> M:
    """Build a settings object; a mistake is one line that names the key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UserError(f"{part} has no setting {key}", did_you_mean(key, model.model_fields)) from error
        raise UserError(f"{part}.{key}={first.get('input')!r:.80}: {first['msg']}") from error


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Read `key=value` pairs; values are YAML, so `4`, `true`, `[a, b]` and plain text mean what they look like."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {assignment} must look like part.key=value", "Example: --set agent.max_steps=4")
        try:
            settings[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            settings[key.strip()] = value
    return settings
