"""The settings of hosted code: its source, its block of the configuration, and the models that it calls by name."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PositiveFloat,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ludus.errors import UserError
from ludus_nemo_gym.hidden import reveal
from ludus_nemo_gym.hosted.hosting import Hosting
from ludus_nemo_gym.hosted.model_servers import Spec, model_names
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource
from ludus_nemo_gym.hosted.transports import transport_of
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.names import MODELS
from ludus_nemo_gym.servers import missing_values
from ludus_nemo_gym.trees import MISSING, Tree, merge

#: Settings with entries of their own: `models.NAME` and `judge_settings.KEY`. Any other path leads into the block.
_WITH_ENTRIES = ("models", "judge_settings")
#: The settings that a user may type for every server, besides those of its own.
_FOR_ALL = ["block_seconds", "isolate", "judge", "judge_settings", "models", "python"]
#: The settings that change nothing about a rollout.
_NOT_IDENTITY = {"tree", "isolate", "python", "block_seconds", "set_with", "own_routes"}

#: Folders that every configuration names: `cache` and `results` of the checkout, unless it says otherwise.
_FOLDERS = ("cache_dir", "results_dir")


class HostedSettings(BaseModel):
    """Where the code of a server or an agent is, what its configuration says, and how to run it.

    Any other setting replaces a value of its configuration.
    """

    model_config = ConfigDict(extra="allow")

    #: the first word of these settings
    part: ClassVar[str]

    #: the code of the server
    source: ServerSource
    #: its name in the configuration
    instance: str
    #: its settings in the configuration
    block: dict[str, Any] = {}
    #: run it in a process of its own
    isolate: bool = True
    #: the Python of that process, if the requirements of the server collide with ours: `FOLDER/.venv/bin/python`
    python: str = ""
    #: the longest time for which its code may block its event loop, in a process of its own
    block_seconds: PositiveFloat = 120.0
    #: the model behind the model servers that it calls, such as a judge
    judge: str = ""
    #: the settings of that model
    judge_settings: dict[str, Any] = {}
    #: a model for each model server, by name, where they differ: a spec, or a mapping with `type`
    models: dict[str, str | dict[str, Any]] = {}
    #: the rest of the configuration, which some servers read
    tree: dict[str, Any] = {}
    #: how a user sets one of the server's settings, in front of its name; `--set PART.` if empty
    set_with: str = ""

    @model_validator(mode="before")
    @classmethod
    def _gather_entries(cls, settings: Any) -> Any:
        """`models.NAME: SPEC` is an entry of `models`."""
        if not isinstance(settings, dict):
            return settings
        gathered: dict[str, Any] = {}
        for key, value in settings.items():
            name, _, entry = str(key).partition(".")
            if entry and name in _WITH_ENTRIES:
                entries: Tree = gathered.get(name) or settings.get(name) or {}
                gathered[name] = {**entries, entry: value}
            else:
                gathered.setdefault(key, value)
        return gathered

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """In a run's identity and in receipts a source is its name, because its folder may move. They do not hold what
        belongs to other servers, nor how the server is run."""
        dumped: dict[str, Any] = dump(self)
        if info.mode == "json":
            dumped = {key: value for key, value in dumped.items() if key not in _NOT_IDENTITY}
            dumped["source"] = self.source.implementation
        return dumped

    def own_block(self) -> Tree:
        """The settings of the server: those of its configuration, with the user's in their places.

        A model server without a name is the judge.
        """
        block = merge(self.block, *(_nested(key, value) for key, value in (self.model_extra or {}).items()))
        named: Tree = _with_judge(block)
        return named

    def specs(self) -> dict[str, Spec | None]:
        """The model of each model server that the server refers to; None where no model is set."""
        named: dict[str, Spec | None] = {name: (spec, {}) for name, spec in self.models.items()}
        judge: Spec | None = (self.judge, self.judge_settings) if self.judge else None
        return {name: judge for name in model_names(self.own_block())} | named

    def transport(self, models: Tree) -> Any:
        """A context manager that starts the server and gives its transport. `models` are addresses of model servers."""
        return transport_of(self.hosting(models), isolate=self.isolate, block_seconds=self.block_seconds)

    def hosting(self, models: Tree) -> Hosting:
        """What to host, with the addresses of the model servers."""
        source, block = self.source, self.own_block()
        if not (source.folder / ENTRY).is_file():
            hint = "Put the checkout at this path, on a disk that every machine of the run mounts"
            raise UserError(f"{source.folder / ENTRY} is not on the machine {platform.node()}", hint)
        set_with = self.set_with or f"--set {self.part}."
        own: Tree = {"host": "127.0.0.1", "port": 0, **block}
        instance = {self.instance: {source.kind: {source.implementation: own}}}
        place = source.root or Path.cwd()
        folders = {name: str(self.tree.get(name) or place / name.removesuffix("_dir")) for name in _FOLDERS}
        tree = {**instance, **self.tree, **models, **folders, **instance}  # own paths are noted first
        resolved = resolve(reveal(tree))
        path = f"{self.instance}.{source.kind}.{source.implementation}."
        absent = {place.removeprefix(path): key for key, place in resolved.absent.items() if place.startswith(path)}
        if missing := [*missing_values(block), *absent]:
            typed = " ".join(f"{set_with}{path}=VALUE" for path in missing)
            variables = [key.removeprefix("oc.env:") for key in absent.values() if key.startswith("oc.env:")]
            instead = f"Set {' and '.join(variables)} in the environment, or add: " if variables else "Add: "
            raise UserError(f"{self.instance} has no value for {', '.join(missing)}", f"{instead}{typed}")
        added = [key.partition(".")[0] for key in self.model_extra or {} if key.partition(".")[0] not in self.block]
        return Hosting(
            source=source,
            instance=self.instance,
            tree=resolved.tree,
            block=resolved.tree[self.instance][source.kind][source.implementation],
            added=added,
            for_all=_FOR_ALL,
            set_with=set_with,
            python=self.python,
        )


def _nested(path: str, value: Any) -> Tree:
    """`a.b` and a value as `{a: {b: value}}`."""
    first, dot, rest = path.partition(".")
    return {first: _nested(rest, value) if dot else value}


def _with_judge(value: Any) -> Any:
    """A block in which model servers without a name are called `judge_model`."""
    if isinstance(value, dict):
        if value.get("type") == MODELS and value.get("name", MISSING) == MISSING:
            return {**value, "name": "judge_model"}
        return {key: _with_judge(part) for key, part in value.items()}
    return [_with_judge(part) for part in value] if isinstance(value, list) else value
