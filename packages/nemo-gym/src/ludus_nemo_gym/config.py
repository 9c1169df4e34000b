"""NeMo Gym's configuration: many files and a command line, merged into one tree.

From low to high priority: the files in `config_paths` (a file overrides the files that it includes, a later file
overrides an earlier one), the environment variables POLICY_BASE_URL, POLICY_API_KEY and POLICY_MODEL_NAME, `env.yaml`,
a dictionary given in Python, the command line. The merged tree's directives are applied next, and its `${...}` are
resolved last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.runtime.keys import ENV_FILE
from ludus_nemo_gym.builtin import builtin_config
from ludus_nemo_gym.directives import apply_directives, directives_as_keys
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.masking import is_secret_key, masked, secrets_in
from ludus_nemo_gym.other_files import refuse_other_files
from ludus_nemo_gym.overrides import deleted_keys, parse_overrides
from ludus_nemo_gym.search_paths import find_file, normal, roots
from ludus_nemo_gym.servers import ServerEntry, broken_references, find_servers, missing_values
from ludus_nemo_gym.trees import Tree, merge, plain, read_yaml, remove, steps_of

CONFIG_PATHS = "config_paths"

#: Values that can also be set by the environment variable of the same name in capitals.
POLICY = ("policy_base_url", "policy_api_key", "policy_model_name")


@dataclass
class GymConfig:
    """A merged configuration. `absent` maps each key without a value to the path of the value that refers to it.

    `unresolved` is the tree with its `${...}`.
    """

    tree: Tree = field(repr=False)
    files: list[str] = field(default_factory=list)
    servers: list[ServerEntry] = field(default_factory=list, repr=False)
    absent: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set, repr=False)
    problems: list[str] = field(default_factory=list)
    unresolved: Tree = field(default_factory=dict, repr=False)

    def public(self) -> Tree:
        """The tree without secrets."""
        shown: Tree = masked(self.tree, self.secrets)
        return shown

    def check(self) -> None:
        """Raise if values are missing, if a server is malformed, or if one refers to a server that does not exist."""
        missing = list(dict.fromkeys([*self.absent, *missing_values(self.tree)]))
        if missing:
            raise UserError(*_missing(missing, self.absent, self.moved))
        problems = broken_references(self.servers, self.moved)
        if self.tree.get("error_on_almost_servers", True):
            problems = [*self.problems, *problems]
        else:
            self.notes += self.problems
        if problems:
            raise UserError("; ".join(problems), "Print the whole configuration with: ng_dump_config, same arguments")


def read_config(
    arguments: Iterable[str] = (),
    *,
    initial: Any = None,
    env_file: Path | None = None,
    check: bool = True,
    only_servers: bool = False,
) -> GymConfig:
    """Read and merge everything that the command line, `initial` and `env.yaml` name.

    With `only_servers`, a file that contributes nothing to servers is an error.

    read_config(["+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"], check=False).tree["mcqa"]
    """
    arguments = list(arguments)
    path = env_file or Path(ENV_FILE)
    variables = {key: os.environ[key.upper()] for key in POLICY if os.environ.get(key.upper())}
    file = read_yaml(path) if path.is_file() else {}
    layers = [variables, file, plain(initial or {}), parse_overrides(arguments)]
    top = merge(*map(directives_as_keys, layers))
    reader = _FileReader()
    tree = reader.read(_paths(top, "the command line and env.yaml"), [])
    if only_servers:
        refuse_other_files(reader.contents, top)
    applied = apply_directives(merge(tree, top))
    for key in deleted_keys(arguments):
        if not remove(applied.tree, steps_of(key)):
            raise UserError(f"~{key}: the configuration has no {key}", did_you_mean(key, applied.tree))
    resolved = resolve(applied.tree)
    if reader.names:
        resolved.tree[CONFIG_PATHS] = reader.names
    servers, problems = find_servers(resolved.tree)
    config = GymConfig(
        resolved.tree,
        reader.names,
        servers,
        resolved.absent,
        applied.moved,
        applied.notes,
        resolved.secrets | secrets_in(resolved.tree),
        problems,
        applied.tree,
    )
    if check:
        config.check()
    return config


class _FileReader:
    """Reads files and the files that they include, each once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.contents: dict[str, Tree] = {}

    def read(self, names: list[str], included_by: list[str]) -> Tree:
        """The merged content of files. `included_by` is the chain of files that includes them."""
        return merge(*(self._file(name, included_by) for name in names))

    def _file(self, name: str, included_by: list[str]) -> Tree:
        key = normal(name)
        if key in included_by:
            raise UserError(f"{name} includes itself: {' -> '.join([*included_by, key])}")
        if key in self.names:
            return {}
        content = directives_as_keys(_load(name, included_by[-1] if included_by else None))
        included = self.read(_paths(content, name), [*included_by, key])
        self.names.append(key)
        self.contents[key] = dict(content)
        content.pop(CONFIG_PATHS, None)
        return merge(included, content)


def _load(name: str, included_by: str | None) -> Tree:
    path = find_file(name)
    if path is not None:
        return read_yaml(path)
    content = builtin_config(name)
    if content is None:
        where = ", ".join(str(root.absolute()) for root in roots())
        by = f" (named in {included_by})" if included_by else ""
        hint = "Built-in files are named resources_servers/NAME/configs/NAME.yaml; list the names with: ludus envs"
        raise UserError(f"there is no config {name}{by} in {where}", hint)
    return content


def _paths(tree: Tree, where: str) -> list[str]:
    """The files that a tree includes."""
    paths = tree.get(CONFIG_PATHS)
    names = [paths] if isinstance(paths, str) else paths or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"{CONFIG_PATHS} in {where} must be a list of paths", "Example: '+config_paths=[a.yaml,b.yaml]'"
        )
    if any("${" in name for name in names):
        names = resolve({**tree, CONFIG_PATHS: names}).tree[CONFIG_PATHS]
    return [str(name) for name in names]


def _missing(names: list[str], absent: dict[str, str], moved: dict[str, str]) -> tuple[str, str]:
    """One message that lists every missing value, and what to type."""
    variables = [name.removeprefix("oc.env:") for name in names if name.startswith("oc.env:")]
    keys = [name for name in names if not name.startswith("oc.env:")]
    listed = []
    for name in names:
        needed = f" (needed by {absent[name]})" if name in absent else ""
        listed.append(f"{name}{needed}" + (f", which was moved to {moved[name]}" if name in moved else ""))
    secret = [key for key in keys if is_secret_key(key.rpartition(".")[2])]
    typed = " ".join(f"'++{key}=VALUE'" for key in keys if key not in secret)
    hints = [f"Type {typed}, or write them into {ENV_FILE}"] if typed else []
    for key in secret:  # not on the command line, which every user of the machine can read
        variable = f", or set {key.upper()}" if key in POLICY else ""
        hints.append(f"Write {key} into {ENV_FILE}{variable}")
    hints += [f"Set {' and '.join(variables)}"] if variables else []
    return f"the configuration has no value for {', '.join(listed)}", ". ".join(hints)
