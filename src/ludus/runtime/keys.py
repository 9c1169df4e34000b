"""API keys and tokens: from environment variables, or from an `env.yaml` in the working directory.

Settings are recorded, so they hold the name of a key's variable and never the key. Texts that leave the process are
masked: every key that was looked up or came with a request. Texts for models and clients also lose this machine's
folders.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import OrderedDict
from functools import cache
from pathlib import Path

from ludus.errors import UserError, cannot_read

ENV_FILE = "env.yaml"
SHORTEST_KEY = 6  # a shorter value is not masked: it would match inside ordinary words
_MAX_REQUEST_KEYS = 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_looked_up: set[str] = set()
_from_requests: OrderedDict[str, None] = OrderedDict()


def look_up_key(name: str) -> str:
    """The value of an environment variable, or else of that name in `env.yaml`; empty if neither sets it.

    look_up_key("OPENAI_API_KEY")
    """
    if not name:
        return ""
    key = os.environ.get(name)
    if key is None:
        key = _file().get(name, "")
    if not key and not _NAME.fullmatch(name):  # the message does not quote it: it may be the key itself
        raise UserError(
            "api_key_env (or token_env) is not the name of an environment variable",
            "Put the key into a variable, and set api_key_env (or token_env) to its name, such as OPENAI_API_KEY",
        )
    key = key.strip()
    if len(key) >= SHORTEST_KEY:
        _looked_up.add(key)
    return key


def header_value(value: str, what: str) -> str:
    """The value, if it can be sent in a header. The error says `what` it is and does not quote it."""
    if _CONTROL.search(value):
        raise UserError(f"{what} holds a line break or another control character", "Set it again, as one line")
    return value


def remember_key(key: str) -> None:
    """Mask this key of a request in texts from now on. Only the latest thousand such keys are remembered."""
    if len(key) >= SHORTEST_KEY:
        _from_requests[key] = None
        _from_requests.move_to_end(key)
        while len(_from_requests) > _MAX_REQUEST_KEYS:
            _from_requests.popitem(last=False)


def redacted(text: str, *secrets: str) -> str:
    """The text with each of the secrets replaced by `***`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def without_partial_key(text: str, key: str) -> str:
    """A truncated text whose end, if it is the beginning of the key, is replaced by `***`."""
    for length in range(min(len(key), len(text)), SHORTEST_KEY - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + "***"
    return text


def without_keys(text: str) -> str:
    """A text for a log: every key that was looked up or came with a request is masked."""
    return redacted(text, *_looked_up, *_from_requests)


def without_keys_and_paths(text: str) -> str:
    """A text for a model or a client: keys are masked, and this machine's folders are replaced by `...`."""
    text = without_keys(text)
    for folder in _folders():
        text = text.replace(folder, "...")
    return text


@cache
def _folders() -> list[str]:
    """The folders whose paths would reveal something about this machine, longest first."""
    places = [Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix), Path(tempfile.gettempdir())]
    for find in (Path.cwd, Path.home):
        try:
            places.append(find())
        except (OSError, RuntimeError):  # the working directory was deleted, or the user has no home
            continue
    names = {str(form) for place in places for form in (place, place.resolve()) if len(form.parts) > 1}
    return sorted(names - {"/usr", "/tmp", "/home"}, key=len, reverse=True)


def _file() -> dict[str, str]:
    path = Path(ENV_FILE)
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8", "Save it as UTF-8") from error
    except OSError as error:
        raise cannot_read(path, error) from error
    import yaml  # most programs have no such file

    try:
        data = yaml.safe_load(content)
    except yaml.YAMLError as error:  # the message leaves out the error's text, which may quote a key
        raise UserError(f"{path} is not valid YAML", "Write one NAME: VALUE per line") from error
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{path} is not a YAML mapping", "Write one NAME: VALUE per line")
    return {str(key): str(value) for key, value in (data or {}).items() if value is not None}
