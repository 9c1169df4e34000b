"""Keys: from the environment, or from an `env.yaml` beside you that stays out of version control.

A key is looked up by the name of its variable, is never part of settings (which are recorded), and is cut out of
every text that a provider sends back.
"""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from ludus.errors import UserError

FILE = "env.yaml"


def secret(name: str) -> str:
    """The value of a key; empty when nobody set it. The environment goes before the file.

    secret("OPENAI_API_KEY")
    """
    found = os.environ.get(name)
    if found is None:
        found = _file().get(name, "")
    return found.strip()


def redacted(text: str, *secrets: str) -> str:
    """A text without the given secrets in it, by value."""
    for each in secrets:
        if each:
            text = text.replace(each, "***")
    return text


def _file() -> dict[str, str]:
    path = Path(FILE)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:  # its text may quote the line, and with it a key
        raise UserError(f"{path} is not valid YAML", "Write it as NAME: VALUE, one a line") from error
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{path} must hold NAME: VALUE pairs")
    return {str(key): str(value) for key, value in (data or {}).items() if value is not None}
