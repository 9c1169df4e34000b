"""Translates the servers of a merged configuration into a `Launch`: Ludus's environments, agents and models."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ludus.environment import Environment, agent_types
from ludus.errors import UserError, did_you_mean
from ludus.folder import folders, read_file
from ludus.runtime.imports import load_object
from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.launch import (
    DEFAULT_HOST,
    HEAD_PORT,
    AgentPart,
    HostedPart,
    Instance,
    Launch,
    ModelPart,
    RemotePart,
    ResourcesPart,
)
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.models import model_part, unknown_model
from ludus_nemo_gym.names import (
    AGENT_SETTINGS,
    AGENT_TYPES,
    AGENTS,
    FOLDER_SETTINGS,
    KIND_NAMES,
    MODELS,
    PREFER_OWN_CODE,
    RELAY,
    RESOURCES,
    RESOURCES_SETTINGS,
    SERVER_FIELDS,
)
from ludus_nemo_gym.own_code import hosted_part, in_one_process
from ludus_nemo_gym.search_paths import (
    environment_folder,
    environment_names,
    find_setting_file,
    folder_beside,
    foreign_code,
)
from ludus_nemo_gym.servers import ServerEntry, environment_servers, fronted_agents
from ludus_nemo_gym.trees import Tree

#: Settings with these endings name a file.
_FILE_SUFFIXES = ("_fpath", "_path")

#: Settings of a resources server about its simulated user, which belong to the agent in Ludus.
_USER_FIELDS = {"user_model_server", "user_responses_create_params"}

#: The limits that a `remote_agent` names, and Ludus's names for them.
_LIMITS = {"remote_responses_timeout_secs": "model", "run_timeout_secs": "rollout"}


def wire(config: GymConfig) -> Launch:
    """What a configuration starts. Raises if it names a part that Ludus does not have."""
    return _Wiring(config).launch()


class _Wiring:
    def __init__(self, config: GymConfig) -> None:
        self.config = config
        self.notes = list(config.notes)
        self.secrets: dict[str, str] = {}
        self.models: dict[str, ModelPart | RemotePart] = {}
        self.resources: dict[str, ResourcesPart | RemotePart] = {}
        self.services: list[Instance] = []
        self.host = _default_host(config.tree)

    def launch(self) -> Launch:
        """Models come first, because resources may call one. Agents come last, because they name both."""
        servers = self.config.servers
        if not servers:
            hint = "Example: '+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]'"
            raise UserError("the configuration names no server", hint)
        instances = {
            server.name: self._instance(server, build(server))
            for kind, build in ((MODELS, self._model), (RESOURCES, self._resources), (AGENTS, self._agent))
            for server in servers
            if server.kind == kind
        }
        tree = self.config.tree
        for server in environment_servers(tree):
            if server.implementation != RELAY:
                agents = ", ".join(fronted_agents(server.block)) or "no agent"
                what = f"{server.name}: Ludus starts no environment server {server.implementation}"
                self.notes.append(f"{what}; rows go straight to {agents}")
        head = tree.get("head_server")
        head = head if isinstance(head, dict) else {}
        self.notes += in_one_process(list(instances.values()))
        return Launch(
            [*(instances[server.name] for server in servers), *self.services],
            str(head.get("host") or self.host),
            HEAD_PORT if (port := _port(head, "port", "head_server.port", least=0)) is None else port,
            _port_range(tree),
            bool(tree.get("dry_run")),
            self.notes,
            self.secrets,
        )

    def _instance(self, server: ServerEntry, part: Any) -> Instance:
        block = server.block
        host, workers = str(block.get("host") or self.host), int(block.get("num_workers") or 1)
        return Instance(server.name, server.kind, server.implementation, host, block.get("port"), workers, part)

    def _model(self, server: ServerEntry) -> ModelPart | RemotePart:
        part = self._by_url(server) or model_part(server.name, server.implementation, server.block)
        part = part or self._by_host_and_port(server)
        if part is None:
            raise self._not_ours(server) or unknown_model(server.name, server.implementation)
        if isinstance(part, ModelPart):
            if part.key is not None:
                variable = f"LUDUS_KEY_{re.sub(r'[^A-Z0-9]', '_', server.name.upper())}"
                while variable in self.secrets:
                    variable += "_"
                self.secrets[variable] = part.key
                part.block["api_key_env"] = variable
            self._note_unknown(server, part.unknown, [])
        self.models[server.name] = part
        return part

    def _resources(self, server: ServerEntry) -> ResourcesPart | RemotePart:
        folder = environment_folder(server.implementation)
        code = foreign_code(RESOURCES, server.implementation, self.config.files)
        if code is not None and self.config.tree.get(PREFER_OWN_CODE):
            folder = None
        part: ResourcesPart | RemotePart | None = self._by_url(server)
        if isinstance(part, RemotePart) and folder is not None:
            part.environment = _environment_spec(server.implementation, folder)
        elif part is None and folder is None:
            part = self._hosted(server, code.parent) if code is not None else self._by_host_and_port(server)
            if part is None:
                what = f"{server.name}: there is no resources server {server.implementation}"
                raise UserError(what, did_you_mean(server.implementation, environment_names()))
        elif part is None and folder is not None:
            if code is not None:
                ours = f"{server.name} is Ludus's environment {server.implementation}, not {code}"
                self.notes.append(f"{ours} (to run that: ++{PREFER_OWN_CODE}=true)")
            part = self._environment(server, folder)
        assert part is not None
        self.resources[server.name] = part
        return part

    def _hosted(self, server: ServerEntry, folder: Path) -> HostedPart:
        specs = {name: self._model_spec(name) for name in self.models}
        return hosted_part(self.config, server, folder, specs, self.secrets)

    def _environment(self, server: ServerEntry, folder: Path) -> ResourcesPart:
        known = Environment.load(str(folder)).resources.Config.model_fields
        part, unknown = ResourcesPart(_environment_spec(server.implementation, folder)), []
        block = _renamed(server.block, RESOURCES_SETTINGS.get(server.implementation, {}))
        for key, value in block.items():
            if key in SERVER_FIELDS or (key in _USER_FIELDS and key not in known):
                continue
            word = key.removesuffix("_model_server")
            if word != key and word in known and isinstance(value, dict):
                part.settings |= self._model_settings(server, key, word, value)
            elif is_secret_key(key) and key in known:
                part.secret_settings[key] = value
            elif is_secret_key(key):
                self.secrets |= {key.upper(): str(value)} if value is not None else {}
            elif key not in known:
                unknown.append(key)
            elif key.endswith("_responses_create_params") and isinstance(value, dict):
                part.settings[key] = {name: field for name, field in value.items() if name != "input"}
            elif key.endswith(_FILE_SUFFIXES) and isinstance(value, str):
                file = find_setting_file(value, server.implementation)
                part.settings[key] = str(file.absolute()) if file is not None else value
            else:
                part.settings[key] = value
        self._note_unknown(server, unknown, list(known))
        setting, marks = FOLDER_SETTINGS.get(server.implementation, ("", ()))
        if setting in known and setting not in part.settings:
            beside = folder_beside(server.implementation, marks, self.config.files)
            part.settings |= {setting: str(beside)} if beside is not None else {}
        return part

    def _model_settings(self, server: ServerEntry, field: str, word: str, reference: Tree) -> Tree:
        """The settings that name one of the models to an environment: `judge` and `judge_settings`."""
        spec = self._model_spec(self._reference(server, field, self.models, reference))
        if isinstance(spec, str):
            return {word: spec}
        rest = {key: value for key, value in spec.items() if key != "type"}
        return {word: spec["type"], f"{word}_settings": rest}

    def _model_spec(self, name: str) -> str | Tree:
        """What `open_model` takes for a model of the configuration: a URL of a server that runs, or a mapping."""
        model = self.models[name]
        return f"{model.url}/v1#{name}" if isinstance(model, RemotePart) else model.block

    def _agent(self, server: ServerEntry) -> AgentPart | RemotePart:
        kind = AGENT_TYPES.get(server.implementation, server.implementation)
        reference = server.block.get("resources_server")
        played = self.resources.get(str(reference.get("name"))) if isinstance(reference, dict) else None
        folder = _folder_of(played)
        defaults = dict(read_file(folder).agent) if folder is not None else {}
        default_kind = str(defaults.pop("type", "simple")) if folder is not None else ""
        remote = self._by_url(server)
        if remote is None and kind not in agent_types() and kind != default_kind:
            remote = self._by_host_and_port(server)
            if remote is None:
                what = f"{server.name}: there is no agent {server.implementation}"
                raise self._not_ours(server) or UserError(what, did_you_mean(server.implementation, AGENT_TYPES))
        if remote is not None:
            return remote
        settings = self._agent_settings(
            server, kind, load_object(agent_types().get(kind, kind), folder).Config.model_fields
        )
        resources = self._reference(server, "resources_server", self.resources)
        settings = {**defaults, **settings} if kind == default_kind else settings
        if kind == "conversation":
            settings |= self._user_settings(resources)
        if server.implementation == "remote_agent":
            return AgentPart(kind, settings, resources, self._service(server), _limits(server.block))
        return AgentPart(kind, settings, resources, self._reference(server, "model_server", self.models))

    def _user_settings(self, resources: str) -> Tree:
        """The simulated user's settings. NeMo Gym has them in the resources server, Ludus in the agent."""
        server = next(entry for entry in self.config.servers if entry.name == resources)
        block, settings = server.block, dict[str, Any]()
        field = next((key for key in ("user_model_server", "simulator_model_server") if block.get(key)), None)
        if field is not None:
            model_settings = self._model_settings(server, field, "user", block[field])
            model = (
                {"type": model_settings["user"], **model_settings["user_settings"]}
                if "user_settings" in model_settings
                else model_settings["user"]
            )
            settings["user"] = model
        if isinstance(params := block.get("user_responses_create_params"), dict):
            settings["user_responses_create_params"] = {key: value for key, value in params.items() if key != "input"}
        return settings

    def _service(self, server: ServerEntry) -> str:
        """The service that decides what a `remote_agent` does. It is a model to the tool loop. Returns its instance."""
        url = server.block.get("agent_base_url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            path = f"{server.name}.{server.kind}.{server.implementation}.agent_base_url"
            raise UserError(f"{server.name}: agent_base_url is not a URL", f"Set it with: '++{path}=http://HOST:PORT'")
        name = f"{server.name}_service"
        part = ModelPart({"type": "remote", "base_url": f"{url.rstrip('/')}/v1"})
        self.models[name] = part
        self.services.append(Instance(name, MODELS, "remote", self.host, None, 1, part))
        return name

    def _agent_settings(self, server: ServerEntry, kind: str, known: Iterable[str]) -> Tree:
        if server.block.get("skip_verification") or self.config.tree.get("skip_verification"):
            raise UserError(f"{server.name}: skip_verification would invent rewards", "Leave it out")
        block = _renamed(server.block, AGENT_SETTINGS.get(kind, {}))
        extra = SERVER_FIELDS | {*known, "resources_server", "model_server", "skip_verification"}
        if server.implementation == "remote_agent":
            extra |= {"agent_base_url", *_LIMITS}
        self._note_unknown(server, [key for key in block if key not in extra], list(known))
        return {key: value for key, value in block.items() if key in known and value is not None}

    def _reference(self, server: ServerEntry, field: str, known: Iterable[str], reference: Any = None) -> str:
        """The name of the instance that a field of a server refers to. Raises if there is none."""
        reference = reference if reference is not None else server.block.get(field)
        name = reference.get("name") if isinstance(reference, dict) else None
        if name is None:
            path = f"{server.name}.{server.kind}.{server.implementation}.{field}.name"
            raise UserError(f"{server.name} has no {field}", f"Set it with: '++{path}=INSTANCE'")
        if name not in known:
            raise UserError(f"{server.name}: {field}: there is no {name}", did_you_mean(str(name), known))
        return str(name)

    def _by_url(self, server: ServerEntry) -> RemotePart | None:
        """A server that already runs: the configuration has its `url`."""
        url = server.block.get("url")
        return RemotePart(str(url).rstrip("/")) if url else None

    def _by_host_and_port(self, server: ServerEntry) -> RemotePart | None:
        """A server that already runs and is not Ludus's code: the configuration has its `host` and `port`."""
        host, port = server.block.get("host"), server.block.get("port")
        return RemotePart(f"http://{host}:{port}") if host and port else None

    def _not_ours(self, server: ServerEntry) -> UserError | None:
        """The error for a server whose `app.py` is on disk: Ludus does not run it."""
        code = foreign_code(server.kind, server.implementation)
        if code is None:
            return None
        what = f"{server.name}: {code} is not Ludus's code, and Ludus does not start it"
        path = f"{server.name}.{server.kind}.{server.implementation}"
        return UserError(what, f"Start it yourself, then name its address: '++{path}.url=http://HOST:PORT'")

    def _note_unknown(self, server: ServerEntry, keys: list[str], known: list[str]) -> None:
        for key in keys:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
            hint = f". Did you mean {near[0]}?" if near else ""
            self.notes.append(f"{server.name}: {KIND_NAMES[server.kind]} setting {key} has no effect here{hint}")


def _environment_spec(name: str, folder: Path) -> str:
    """The name of an installed environment; the folder of any other."""
    return name if folders().get(name) == folder else str(folder.resolve())


def _folder_of(part: ResourcesPart | RemotePart | None) -> Path | None:
    """The folder of the Ludus environment that an agent plays."""
    if part is None or part.environment is None or isinstance(part, HostedPart):
        return None
    return Path(part.environment) if "/" in part.environment else environment_folder(part.environment)


def _renamed(block: Tree, names: dict[str, str]) -> Tree:
    """A block with some of its keys renamed. A renamed key replaces a key that is already there."""
    plain = {key: value for key, value in block.items() if key not in names}
    return plain | {names[key]: value for key, value in block.items() if key in names and value is not None}


def _limits(block: Tree) -> Tree:
    return {name: block[key] for key, name in _LIMITS.items() if block.get(key) is not None}


def _default_host(tree: Tree) -> str:
    if tree.get("default_host"):
        return str(tree["default_host"])
    if not tree.get("use_absolute_ip"):
        return DEFAULT_HOST
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise UserError("cannot find this machine's address", "Set it with: ++default_host=ADDRESS") from error


def _port_range(tree: Tree) -> tuple[int, int] | None:
    """The ports that servers may use, if the configuration limits them."""
    low, high = (_port(tree, f"port_range_{end}", f"port_range_{end}") for end in ("low", "high"))
    if low is None and high is None:
        return None
    return (low or 10001, high or 20000)


def _port(tree: Tree, key: str, name: str, least: int = 1) -> int | None:
    value = tree.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value < 65536):
        return value
    raise UserError(f"{name} {value!r:.40} is not a port from {least} to 65535", f"Example: ++{name}=11000")
