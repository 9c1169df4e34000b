"""Keys: from the environment, or from an `env.yaml` beside you that stays out of version control.

A key is looked up by the name of its variable, is never part of settings (which are recorded), and is cut out of
every text that a provider sends back. Texts that leave the process are cleaned by value: of every key that was looked
up or came with a request, and of the folders of this machine.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import OrderedDict
from functools import cache
from pathlib import Path

import yaml

from ludus.errors import UserError

FILE = "env.yaml"
SHORTEST = 6  # what is shorter is no key, and would be cut out of ordinary words
_REMEMBERED = 1024  # of the keys that requests brought along
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_looked_up: set[str] = set()
_brought: OrderedDict[str, None] = OrderedDict()


def secret(name: str) -> str:
    """The value of a key; empty when nobody set it. The environment goes before the file.

    secret("OPENAI_API_KEY")
    """
    if not name:
        return ""
    found = os.environ.get(name)
    if found is None:
        found = _file().get(name, "")
    if not found and not _NAME.fullmatch(name):  # which is not quoted: it may well be the key itself
        raise UserError(
            "a key is looked up by the name of its variable, and what was given is no such name",
            "Put the key into a variable, and set api_key_env (or token_env) to its name, such as OPENAI_API_KEY",
        )
    found = found.strip()
    if len(found) >= SHORTEST:
        _looked_up.add(found)
    return found


def one_line(value: str, what: str) -> str:
    """A value that can be sent in a header. One that cannot is refused by what it is, and not quoted."""
    if _CONTROL.search(value):
        raise UserError(f"{what} holds a line break or another control character", "Set it again, as one line")
    return value


def hide(key: str) -> None:
    """Treat a key that a request brought along like one that was looked up. The last thousand are remembered."""
    if len(key) >= SHORTEST:
        _brought[key] = None
        _brought.move_to_end(key)
        while len(_brought) > _REMEMBERED:
            _brought.popitem(last=False)


def redacted(text: str, *secrets: str) -> str:
    """A text without the given secrets in it, by value."""
    for each in secrets:
        if each:
            text = text.replace(each, "***")
    return text


def without_half(text: str, key: str) -> str:
    """A text that was cut short, without the beginning of a key at its end."""
    for length in range(min(len(key), len(text)), SHORTEST - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + "***"
    return text


def without_keys(text: str) -> str:
    """A text fit for a log: without any key that was looked up or brought along."""
    return redacted(text, *_looked_up, *_brought)


def public(text: str) -> str:
    """A text fit for a model or a client: without any key that was looked up, and without where things are here."""
    text = without_keys(text)
    for folder in _folders():
        text = text.replace(folder, "...")
    return text


@cache
def _folders() -> list[str]:
    """Folders whose names say something about this machine, the longest first."""
    places = [Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix), Path(tempfile.gettempdir())]
    for find in (Path.cwd, Path.home):
        try:
            places.append(find())
        except (OSError, RuntimeError):  # a folder that is gone, a user without a home
            continue
    names = {str(form) for place in places for form in (place, place.resolve()) if len(form.parts) > 1}
    return sorted(names - {"/usr", "/tmp", "/home"}, key=len, reverse=True)


def _file() -> dict[str, str]:
    path = Path(FILE)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8", "Save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:  # its text may quote the line, and with it a key
        raise UserError(f"{path} is not valid YAML", "Write it as NAME: VALUE, one a line") from error
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{path} must hold NAME: VALUE pairs")
    return {str(key): str(value) for key, value in (data or {}).items() if value is not None}
