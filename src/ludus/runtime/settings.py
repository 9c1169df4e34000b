"""Settings: `part.key=value` from the command line or YAML files, checked against the class that declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ludus.errors import UserError, did_you_mean
from ludus.runtime.imports import describe
from ludus.runtime.redaction import masked
from ludus.runtime.wording import describe_errors

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], values: dict[str, Any], part: str) -> M:
    """Validate the values with the model. A mistake is a UserError of one line that names the key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
        # A misspelled setting is two errors if the right one is required: it is missing, and this one is unknown.
        first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
        key = _key(first, values)
        if first["type"] == "extra_forbidden":
            raise UserError(f"{part} has no setting {key}", did_you_mean(key, model.model_fields)) from error
        same = [each for each in errors if _key(each, values) == key]
        raise UserError(describe_errors(f"{part}.{key}", same, masked(first.get("input")))) from error
    except UserError:
        raise
    except Exception as error:  # raised by an author's validator
        raise UserError(f"{part}: {describe(error)}", "Add --debug to see more") from error


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Read `key=value` pairs; values are YAML, so `4`, `true`, `[a, b]` and plain text mean what they look like."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {assignment} must look like part.key=value", "Example: --set agent.max_steps=4")
        try:
            settings[key.strip()] = yaml.safe_load(value)
        except (ValueError, yaml.YAMLError):  # PyYAML raises ValueError for dates such as 2020-13-45
            settings[key.strip()] = value
        except RecursionError as error:
            raise UserError(f"--set {key.strip()}: {value[:20]}... is nested too deep") from error
    return settings


def read_yaml(path: Path, what: str = "") -> Any:
    """The content of a YAML file. Errors put `what` before its path."""
    name = f"{what} {path}".strip()
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8: {error.reason} at byte {error.start}", "Save it as UTF-8") from error
    except RecursionError as error:
        raise UserError(f"{name} is nested too deep") from error
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{name} is not valid YAML: {' '.join(str(error).split())}") from error


def _key(error: ErrorDetails, values: Any) -> str:
    """The key that an error is about: its location without the names of union branches, which are not in the values."""
    steps = []
    for step in error["loc"]:
        try:
            values = values[step]
        except (LookupError, TypeError):
            if error["type"] != "missing" or step != error["loc"][-1]:
                continue
        steps.append(str(step))
    return ".".join(steps)
