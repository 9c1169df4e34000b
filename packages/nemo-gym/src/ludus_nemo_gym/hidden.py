"""Secrets of a configuration on their way to the process that needs them: in environment variables.

What travels between processes names the variable in place of the value, and so may be written down.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any

from ludus.errors import UserError
from ludus_nemo_gym.masking import SHORTEST, is_placeholder, is_secret_key

_NAMED = re.compile(r"\$\{oc\.env:(LUDUS_SETTING_[A-Z0-9_]*)\}")


def hide(tree: Any, secrets: Iterable[str], variables: dict[str, str]) -> Any:
    """A copy of a tree in which each secret is the name of a variable. The values are added to `variables`.

    A secret is a value under a secret's name, and any text that contains one of `secrets`.
    """
    return _hidden(tree, "", [secret for secret in secrets if len(secret) >= SHORTEST], variables, inside=False)


def reveal(tree: Any) -> Any:
    """The tree with its secrets, from the environment variables that it names."""
    if isinstance(tree, dict):
        return {key: reveal(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [reveal(value) for value in tree]
    named = _NAMED.fullmatch(tree) if isinstance(tree, str) else None
    if named is None:
        return tree
    if named[1] not in os.environ:
        raise UserError(f"the environment variable {named[1]} is not set", "Start the servers again")
    return json.loads(os.environ[named[1]])


def _hidden(node: Any, path: str, secrets: list[str], variables: dict[str, str], *, inside: bool) -> Any:
    if isinstance(node, dict):
        return {
            key: _hidden(value, f"{path}.{key}", secrets, variables, inside=inside or is_secret_key(key))
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [
            _hidden(value, f"{path}.{index}", secrets, variables, inside=inside) for index, value in enumerate(node)
        ]
    if node in (None, "") or isinstance(node, bool) or is_placeholder(node):
        return node
    if inside or (isinstance(node, str) and any(secret in node for secret in secrets)):
        return f"${{oc.env:{_variable(path, json.dumps(node), variables)}}}"
    return node


def _variable(path: str, value: str, variables: dict[str, str]) -> str:
    """The variable of a value: one that has it already, or a new one that is named after the value's place."""
    for name, other in variables.items():
        if other == value and name.startswith("LUDUS_SETTING_"):
            return name
    name = f"LUDUS_SETTING_{re.sub(r'[^A-Z0-9]', '_', path.lstrip('.').upper())}"
    while name in variables:
        name += "_"
    variables[name] = value
    return name
