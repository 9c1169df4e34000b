"""`${...}` inside a configuration, resolved by OmegaConf: `${key}`, `${a.b}`, `${oc.env:VARIABLE,default}`.

OmegaConf stops at the first missing value. To report all of them, each value is resolved by itself, and a value that
refers to a missing one stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from threading import Lock
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError, UnsupportedInterpolationType
from omegaconf.resolvers import oc

from ludus.errors import UserError
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.trees import Tree, user_errors

#: What OmegaConf says about a missing value. The last group is its name.
_MISSING = re.compile(
    r"Interpolation key '(.+?)' not found(?: \(resolved to '(.+)'\))?|Missing mandatory value: (\S+)|"
    r"Error trying to access (\S+): node|Environment variable '(?P<variable>.+)' not found"
)
_CIRCLE = re.compile("Recursive interpolation|Interpolation to parent node")

#: Resolvers of OmegaConf are global: one configuration is resolved at a time.
_ONE_AT_A_TIME = Lock()


@dataclass
class Resolved:
    """A tree without `${...}`. `absent` maps each missing key or variable to the path of the value that needs it."""

    tree: Tree = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)


def resolve(tree: Tree) -> Resolved:
    """Replace every `${...}` by its value. One without a value stays, and is listed in `absent`."""
    with user_errors():
        config = OmegaConf.create(tree)
    resolver = _Resolver()
    with _ONE_AT_A_TIME, _noting_secrets(resolver.secrets):
        return Resolved(resolver.container(tree, config, ""), resolver.absent, resolver.secrets)


@contextmanager
def _noting_secrets(secrets: set[str]) -> Iterator[None]:
    """Add to `secrets` every value, also a default, that `oc.env` returns for a variable with a secret's name."""

    def environment(name: str, *default: Any) -> Any:
        value = oc.env(name, *default)
        if value and is_secret_key(name):
            secrets.add(str(value))
        return value

    _register("oc.env", environment)
    try:
        yield
    finally:
        _register("oc.env", oc.env)


def _register(name: str, resolver: Callable[..., Any]) -> None:
    """Register a resolver in place of another. OmegaConf 2.3, which Hydra 1.3 needs, has another name for it."""
    if "replace" in signature(OmegaConf.register_resolver).parameters:
        OmegaConf.register_resolver(name, resolver, replace=True)
    else:
        OmegaConf.register_new_resolver(name, resolver, replace=True)


class _Resolver:
    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self.secrets: set[str] = set()
        self._open: list[Any] = []

    def container(self, raw: Any, config: Any, path: str) -> Any:
        """A mapping or a list with everything below it resolved. `raw` is the same before resolving."""
        if isinstance(raw, dict):
            return {key: self._item(item, config, key, f"{path}.{key}".lstrip(".")) for key, item in raw.items()}
        return [self._item(item, config, index, f"{path}[{index}]") for index, item in enumerate(raw)]

    def _item(self, raw: Any, parent: Any, key: Any, path: str) -> Any:
        if isinstance(raw, (dict, list)):
            return self.container(raw, parent[key], path)
        if not isinstance(raw, str) or "${" not in raw:
            return raw
        try:
            value = parent[key]
        except InterpolationResolutionError as error:
            self.absent.setdefault(_missing_name(error, path), path)
            return raw
        if not OmegaConf.is_config(value):
            return value
        if any(value is other for other in self._open):
            raise _circle(path)
        self._open.append(value)
        try:
            return self.container(OmegaConf.to_container(value, resolve=False), value, path)
        finally:
            self._open.pop()


def _missing_name(error: InterpolationResolutionError, path: str) -> str:
    """The key or variable whose value is missing; any other error is raised as the user's mistake."""
    text = str(error)
    if (match := _MISSING.search(text)) is not None:
        name = match[match.lastindex or 0]
        return f"oc.env:{name}" if match["variable"] else name
    if _CIRCLE.search(text):
        raise _circle(path) from error
    if isinstance(error, UnsupportedInterpolationType):
        name, known = text.splitlines()[0].rpartition(" ")[2], "copy, inherit_from and OmegaConf's, such as oc.env"
        raise UserError(f"{path}: unknown function {name} in ${{...}}", f"Known: {known}") from error
    raise UserError(f"{path}: cannot resolve the ${{...}}", "Write ${key}, ${a.b} or ${oc.env:VARIABLE}") from error


def _circle(path: str) -> UserError:
    return UserError(f"{path}: the ${{...}} leads back to itself", "Write a value in its place")
