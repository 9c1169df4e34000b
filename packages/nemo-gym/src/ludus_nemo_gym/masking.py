"""Masks the secrets of a configuration before it is printed.

A key's name marks its value as a secret. The same value is then masked wherever else it appears. Names such as
`max_output_tokens`, `tokenizer` and `answer_key` mark no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ludus.runtime.keys import redacted
from ludus_nemo_gym.names import ENVIRONMENTS, KINDS

MASK = "***"
#: Shorter secrets are placeholders such as EMPTY. They are masked under their own key only.
SHORTEST = 8

_SECRET_WORDS = set(
    "password passwd passphrase secret secrets credential credentials authorization bearer apikey".split()
)
_BEFORE_KEY = {"", *"api access account secret private subscription signing encryption".split()}
_TOKENIZER_TOKENS = set("bos cls end eos mask pad sep start stop think unk".split())
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)(?=@)")


def is_secret_key(key: str) -> bool:
    """Whether a key of this name holds a secret."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower().split("_")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return before not in _TOKENIZER_TOKENS
    return last in _SECRET_WORDS or (last == "key" and before in _BEFORE_KEY) or (last == "keys" and before == "api")


def secrets_in(tree: Any) -> set[str]:
    """The secrets of a configuration, as texts."""
    secrets: set[str] = set()
    if isinstance(tree, dict):
        for key, value in tree.items():
            if is_secret_key(key) and value not in (None, "", MASK) and not _is_server(value):
                secrets |= set(_texts(value))
            else:
                secrets |= secrets_in(value)
    elif isinstance(tree, list):
        secrets = set().union(*(secrets_in(item) for item in tree))
    elif isinstance(tree, str):
        secrets = {password for _, password in _URL_PASSWORD.findall(tree)}
    return secrets


def masked(tree: Any, secrets: Iterable[str] = ()) -> Any:
    """A copy without secrets: neither under a secret's name nor as part of any other text."""
    known = sorted(
        {secret for secret in {*secrets, *secrets_in(tree)} if len(secret) >= SHORTEST}, key=len, reverse=True
    )
    return _masked(tree, known)


def _masked(tree: Any, secrets: list[str]) -> Any:
    if isinstance(tree, dict):
        return {
            redacted(key, *secrets): MASK
            if is_secret_key(key) and value not in (None, "") and not is_placeholder(value) and not _is_server(value)
            else _masked(value, secrets)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_masked(item, secrets) for item in tree]
    if isinstance(tree, str):
        return _URL_PASSWORD.sub(rf"\1:{MASK}", redacted(tree, *secrets))
    return tree


def _is_server(value: Any) -> bool:
    """Whether a value is the block of a server, whose name and kind may be `secret` or `password`."""
    return isinstance(value, dict) and not value.keys().isdisjoint((*KINDS, ENVIRONMENTS, "entrypoint"))


def is_placeholder(value: Any) -> bool:
    """Whether a value is a placeholder: `???` or a `${...}` without a default."""
    return isinstance(value, str) and (value == "???" or bool(re.fullmatch(r"\$\{[^{},]*\}", value)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [str(value)] if not isinstance(value, bool) and value is not None and not is_placeholder(value) else []
