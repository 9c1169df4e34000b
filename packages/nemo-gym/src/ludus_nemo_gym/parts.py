"""The parts of a launch while a configuration is translated, and what parts of every kind need from it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.launch import Instance, ModelPart, RemotePart, ResourcesPart
from ludus_nemo_gym.names import KIND_NAMES
from ludus_nemo_gym.servers import ServerEntry
from ludus_nemo_gym.trees import Tree


class Parts:
    """The models and resources that are translated so far, by instance, with the notes and secrets of the launch.

    `services` are instances that the configuration does not name. `host` is where instances listen by default.
    """

    def __init__(self, config: GymConfig, host: str) -> None:
        self.config, self.host = config, host
        self.notes = list(config.notes)
        self.secrets: dict[str, str] = {}
        self.models: dict[str, ModelPart | RemotePart] = {}
        self.resources: dict[str, ResourcesPart | RemotePart] = {}
        self.services: list[Instance] = []

    def reference(self, server: ServerEntry, field: str, known: Iterable[str], reference: Any = None) -> str:
        """The name of the instance that a field of a server refers to. Raises if there is none."""
        reference = reference if reference is not None else server.block.get(field)
        name = reference.get("name") if isinstance(reference, dict) else None
        if name is None:
            path = f"{server.name}.{server.kind}.{server.implementation}.{field}.name"
            raise UserError(f"{server.name} has no {field}", f"Set it with: '++{path}=INSTANCE'")
        if name not in known:
            raise UserError(f"{server.name}: {field}: there is no {name}", did_you_mean(str(name), known))
        return str(name)

    def model_settings(self, server: ServerEntry, field: str, word: str, reference: Tree) -> Tree:
        """The settings that name one of the models to an environment: `judge` and `judge_settings`."""
        spec = self.model_spec(self.reference(server, field, self.models, reference))
        if isinstance(spec, str):
            return {word: spec}
        rest = {key: value for key, value in spec.items() if key != "type"}
        return {word: spec["type"], f"{word}_settings": rest}

    def model_spec(self, name: str) -> str | Tree:
        """What `open_model` takes for a model of the configuration: a URL of a server that runs, or a mapping."""
        model = self.models[name]
        return f"{model.url}/v1#{name}" if isinstance(model, RemotePart) else model.block

    def note_unknown(self, server: ServerEntry, keys: list[str], known: list[str]) -> None:
        """Note that settings of a server have no effect."""
        for key in keys:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
            hint = f". Did you mean {near[0]}?" if near else ""
            self.notes.append(f"{server.name}: {KIND_NAMES[server.kind]} setting {key} has no effect here{hint}")


def by_url(server: ServerEntry) -> RemotePart | None:
    """A server that already runs: the configuration has its `url`."""
    url = server.block.get("url")
    return RemotePart(str(url).rstrip("/")) if url else None


def by_host_and_port(server: ServerEntry) -> RemotePart | None:
    """A server that already runs and is not Ludus's code: the configuration has its `host` and `port`."""
    host, port = server.block.get("host"), server.block.get("port")
    return RemotePart(f"http://{host}:{port}") if host and port else None


def renamed(block: Tree, names: dict[str, str]) -> Tree:
    """A block with some of its keys renamed. A renamed key replaces a key that is already there."""
    plain = {key: value for key, value in block.items() if key not in names}
    return plain | {names[key]: value for key, value in block.items() if key in names and value is not None}
