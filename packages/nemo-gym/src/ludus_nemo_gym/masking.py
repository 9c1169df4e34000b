"""What may be printed of a configuration: everything but its secrets.

A secret is known by the name of its key, and, once known, by its value wherever else that stands. `max_output_tokens`,
`tokenizer` and `answer_key` are no secrets although they sound like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ludus.runtime.keys import redacted

MASK = "***"
#: Shorter ones are words such as EMPTY, which servers without keys are given, and stand in many places.
SHORTEST = 8

_ALWAYS = set("password passwd passphrase secret secrets credential credentials authorization bearer apikey".split())
_BEFORE_KEY = {"", *"api access account secret private subscription signing encryption".split()}
_TOKENS_OF_TEXT = set("bos cls end eos mask pad sep start stop think unk".split())
_IN_A_URL = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)(?=@)")


def is_secret_key(key: str) -> bool:
    """Whether what is stored under this name must not be shown."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower().split("_")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return before not in _TOKENS_OF_TEXT
    return last in _ALWAYS or (last == "key" and before in _BEFORE_KEY) or (last == "keys" and before == "api")


def secrets_in(tree: Any) -> set[str]:
    """The secrets of a configuration, as texts."""
    found: set[str] = set()
    if isinstance(tree, dict):
        for key, value in tree.items():
            if is_secret_key(key) and value not in (None, "", MASK):
                found |= set(_texts(value))
            else:
                found |= secrets_in(value)
    elif isinstance(tree, list):
        found = set().union(*(secrets_in(item) for item in tree))
    return found


def masked(tree: Any, secrets: Iterable[str] = ()) -> Any:
    """A copy without secrets: those under a secret's name, and the same texts anywhere else."""
    known = sorted({each for each in {*secrets, *secrets_in(tree)} if len(each) >= SHORTEST}, key=len, reverse=True)
    return _masked(tree, known)


def _masked(tree: Any, secrets: list[str]) -> Any:
    if isinstance(tree, dict):
        return {
            redacted(key, *secrets): MASK
            if is_secret_key(key) and value not in (None, "") and not _unset(value)
            else _masked(value, secrets)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_masked(item, secrets) for item in tree]
    if isinstance(tree, str):
        return _IN_A_URL.sub(rf"\1:{MASK}", redacted(tree, *secrets))
    return tree


def _unset(value: Any) -> bool:
    """Whether a value only says where it will come from."""
    return isinstance(value, str) and (value == "???" or bool(re.fullmatch(r"\$\{[^{},]*\}", value)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [str(value)] if not isinstance(value, bool) and value is not None and not _unset(value) else []
