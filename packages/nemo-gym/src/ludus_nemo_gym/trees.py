"""Nested mappings: read from YAML, merged by OmegaConf, and reached by dotted paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from ludus.errors import UserError
from ludus.runtime.numbers import whole_number

Tree = dict[str, Any]

#: Marks a value that the user must set.
MISSING = "???"


@contextmanager
def user_errors(what: str = "") -> Iterator[None]:
    """Turn OmegaConf's errors into one line. Their own text is left out: it may quote a secret."""
    try:
        yield
    except RecursionError as error:
        raise UserError(f"{what or 'the configuration'} is nested too deeply") from error
    except OmegaConfBaseException as error:
        where = ": ".join(filter(None, (what, error.full_key))) or "the configuration"
        if isinstance(error, GrammarParseError):
            hint = "Write ${key}, ${a.b} or ${oc.env:VARIABLE}, and \\${ for the two characters themselves"
            raise UserError(f"{where}: cannot read the ${{...}}", hint) from error
        raise UserError(f"{where}: cannot hold this kind of key or value") from error


def read_yaml(path: Path) -> Tree:
    """The mapping that a YAML file holds. An error names the line and never quotes it, because it may hold a secret."""
    try:
        with user_errors(str(path)):
            config = OmegaConf.load(path)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or 'it must hold a mapping'}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UserError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}") from error
    if not isinstance(config, DictConfig):
        raise UserError(f"{path} must hold a mapping", "Write one key: value a line")
    tree: Tree = plain(config)
    return tree


def plain(value: Any) -> Any:
    """Any library's mappings and lists, OmegaConf's too, as Python's dictionaries and lists. Keys become texts."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value


def merge(*trees: Tree) -> Tree:
    """The trees merged as OmegaConf does it: later values win, lists are replaced, and a `???` replaces nothing."""
    merged: Tree
    try:
        with user_errors():
            merged = plain(OmegaConf.merge({}, *trees))
    except TypeError as error:
        path = next(_clashes(*trees), "a key of the configuration")
        raise UserError(f"{path} is a list in one place and a mapping in another", "Keep one of them") from error
    return merged


def _clashes(*trees: Any, path: str = "") -> Iterator[str]:
    """The paths that hold a list in one tree and a mapping in another."""
    if {dict, list} <= set(map(type, trees)):
        yield path
        return
    mappings = [tree for tree in trees if isinstance(tree, dict)]
    for key in dict.fromkeys(key for mapping in mappings for key in mapping):
        values = [mapping[key] for mapping in mappings if key in mapping]
        yield from _clashes(*values, path=f"{path}.{key}".lstrip("."))


def steps_of(path: str) -> list[str]:
    """The steps of `a.b[0].c`: a, b, 0, c."""
    return [step for step in re.split(r"[.\[\]]", path) if step]


def step_into(node: Any, step: str) -> Any:
    """The child of a node. Raises KeyError where there is none."""
    if isinstance(node, dict):
        return node[step]
    number = whole_number(step)
    if isinstance(node, list) and number is not None and number < len(node):
        return node[number]
    raise KeyError(step)


def remove(tree: Tree, path: list[str]) -> bool:
    """Delete the key at a path. Returns whether it existed."""
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
