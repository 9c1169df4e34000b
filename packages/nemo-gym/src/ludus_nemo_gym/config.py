"""NeMo Gym's configuration without OmegaConf or Hydra: many files and a command line, merged into one tree.

From low to high: the files of `config_paths` (a file may name more, which it overrides; a later file overrides an
earlier one), `env.yaml`, what a program hands over, the command line. Then directives are carried out, then `${...}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.runtime.keys import FILE as ENV_FILE
from ludus_nemo_gym.builtin import builtin_config
from ludus_nemo_gym.directives import apply_directives, written_out
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.masking import masked, secrets_in
from ludus_nemo_gym.overrides import parse_overrides
from ludus_nemo_gym.places import find_file, normal, roots
from ludus_nemo_gym.servers import Server, broken_references, find_servers, missing_values
from ludus_nemo_gym.trees import Tree, merge, plain, read_yaml

CONFIG_PATHS = "config_paths"


@dataclass
class Config:
    """A merged configuration. `absent` says of each `${key}` without a value who asked for it."""

    tree: Tree = field(repr=False)
    files: list[str] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list, repr=False)
    absent: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set, repr=False)
    problems: list[str] = field(default_factory=list)

    def public(self) -> Tree:
        """The tree without secrets."""
        shown: Tree = masked(self.tree, self.secrets)
        return shown

    def check(self) -> None:
        """Refuse what cannot be run: values that are missing, servers that are none, references into nothing."""
        missing = list(dict.fromkeys([*self.absent, *missing_values(self.tree)]))
        if missing:
            raise UserError(*_missing(missing, self.absent, self.moved))
        problems = broken_references(self.servers, self.moved)
        if self.tree.get("error_on_almost_servers", True):
            problems = [*self.problems, *problems]
        else:
            self.notes += self.problems
        if problems:
            raise UserError("; ".join(problems), "Look at the whole with: ng_dump_config and the same arguments")


def read_config(
    arguments: Iterable[str] = (),
    *,
    initial: Any = None,
    env_file: Path | None = None,
    check: bool = True,
) -> Config:
    """Read everything that a command line, a program and `env.yaml` name.

    read_config(["+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"], check=False).tree["mcqa"]
    """
    path = env_file or Path(ENV_FILE)
    layers = [
        written_out(each)
        for each in (
            read_yaml(path) if path.is_file() else {},
            plain(initial) if initial is not None else {},
            parse_overrides(arguments),
        )
    ]
    top: Tree = {}
    for layer in layers:
        top = merge(top, layer)
    reading = _Reading()
    tree: Tree = reading.read(_paths(top, "the command line and env.yaml"), [])
    applied = apply_directives(merge(tree, top))
    resolved = resolve(applied.tree)
    if reading.names:
        resolved.tree[CONFIG_PATHS] = reading.names
    servers, problems = find_servers(resolved.tree)
    secrets = resolved.secrets | secrets_in(resolved.tree)
    notes = list(applied.notes)
    config = Config(resolved.tree, reading.names, servers, resolved.absent, applied.moved, notes, secrets, problems)
    if check:
        config.check()
    return config


class _Reading:
    """Reads files and the files that they name, each once."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def read(self, names: list[str], within: list[str]) -> Tree:
        """The merged content of files; `within` are the files that led here."""
        tree: Tree = {}
        for name in names:
            tree = merge(tree, self._file(name, within))
        return tree

    def _file(self, name: str, within: list[str]) -> Tree:
        key = normal(name)
        if key in within:
            raise UserError(f"{name} includes itself: {' -> '.join([*within, key])}")
        if key in self.names:
            return {}
        content = written_out(_load(name, within[-1] if within else None))
        included = _paths(content, name)
        below = self.read(included, [*within, key])
        self.names.append(key)
        content.pop(CONFIG_PATHS, None)
        merged: Tree = merge(below, content)
        return merged


def _load(name: str, named_in: str | None) -> Tree:
    path = find_file(name)
    if path is not None:
        return read_yaml(path)
    found = builtin_config(name)
    if found is None:
        where = ", ".join(str(root.absolute()) for root in roots())
        by = f" (named in {named_in})" if named_in else ""
        hint = "Ours are named like resources_servers/NAME/configs/NAME.yaml, and ludus envs lists the names"
        raise UserError(f"there is no config {name}{by} in {where}", hint)
    return found


def _paths(tree: Tree, where: str) -> list[str]:
    """The files that a tree names."""
    given = tree.get(CONFIG_PATHS)
    names = [given] if isinstance(given, str) else given or []
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise UserError(
            f"{CONFIG_PATHS} in {where} must be a list of paths", "Example: '+config_paths=[a.yaml,b.yaml]'"
        )
    if any("${" in each for each in names):
        names = resolve({**tree, CONFIG_PATHS: names}).tree[CONFIG_PATHS]
    return [str(each) for each in names]


def _missing(names: list[str], absent: dict[str, str], moved: dict[str, str]) -> tuple[str, str]:
    """One message about everything that has no value, and what to type."""
    variables = [name.removeprefix("oc.env:") for name in names if name.startswith("oc.env:")]
    keys = [name for name in names if not name.startswith("oc.env:")]
    told = []
    for name in names:
        asked = f" (asked for by {absent[name]})" if name in absent else ""
        told.append(f"{name}{asked}" + (f", which was moved to {moved[name]}" if name in moved else ""))
    typed = " ".join(f"'++{key}=VALUE'" for key in keys)
    hints = [f"Type {typed}, or write them into {ENV_FILE}"] if keys else []
    hints += [f"Set {' and '.join(variables)}"] if variables else []
    return f"the configuration has no value for {', '.join(told)}", ". ".join(hints)
