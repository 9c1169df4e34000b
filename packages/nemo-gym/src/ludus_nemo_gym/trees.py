"""Nested mappings: read from YAML, merged, and reached by dotted paths."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ludus.errors import UserError

Tree = dict[str, Any]

#: How a configuration says that a value must be given and was not.
MISSING = "???"


def read_yaml(path: Path) -> Tree:
    """The mapping that a YAML file holds. An error names the line and never quotes it: there may be a key on it."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise UserError(f"{where}: not valid YAML: {problem}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold a mapping", "Write it as key: value, one a line")
    read: Tree = plain(tree)
    return read


def plain(value: Any) -> Any:
    """Mappings, lists and values of any library (OmegaConf's too) as Python's own, with texts for keys."""
    if type(value).__module__.startswith("omegaconf."):
        value = importlib.import_module("omegaconf").OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value


def merge(under: Any, over: Any) -> Any:
    """Mappings are merged key by key, everything else is replaced; a `???` replaces nothing."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return copy.deepcopy(over)
    merged = dict(under)
    for key, value in over.items():
        if key not in under:
            merged[key] = copy.deepcopy(value)
        elif value != MISSING:
            merged[key] = merge(under[key], value)
    return merged


def steps_of(path: str) -> list[str]:
    """The steps of `a.b[0].c`: a, b, 0, c."""
    return [step for step in re.split(r"[.\[\]]", path) if step]


def step_into(node: Any, step: str) -> Any:
    """The child of a node. Raises KeyError where there is none."""
    if isinstance(node, dict):
        return node[step]
    if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        return node[int(step)]
    raise KeyError(step)


def put(tree: Tree, path: list[str], value: Any) -> None:
    """Set a value by its path, making mappings on the way."""
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def remove(tree: Tree, path: list[str]) -> bool:
    """Take out what a path leads to; whether it was there."""
    node: Any = tree
    try:
        for step in path[:-1]:
            node = step_into(node, step)
    except KeyError:
        return False
    if not isinstance(node, dict) or path[-1] not in node:
        return False
    del node[path[-1]]
    return True


class _Loader(yaml.SafeLoader):
    """YAML as OmegaConf reads it: `1e-3` is a number, a date is a text, and a key may stand there only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key, Hashable):
                continue
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, "this key stands here already", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
