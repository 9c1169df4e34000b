"""What a server needs on this machine, read from its files: nothing of its code is imported or run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ludus.adapter import Need
from ludus.dataset import Dataset
from ludus.errors import UserError, install_command
from ludus_nemo_gym.config import POLICY
from ludus_nemo_gym.hosted.clues import container, gpu, network
from ludus_nemo_gym.hosted.imports import OURS, ServerCode, read_code
from ludus_nemo_gym.hosted.packages import ASSUMED, Installed, distribution_of, own_environment
from ludus_nemo_gym.hosted.requirements import Requirements, Wanted, pip_install, read_requirements
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.names import AGENTS, MODELS, POLICY_FIELDS, POLICY_SERVER
from ludus_nemo_gym.servers import ServerEntry, missing_values, references
from ludus_nemo_gym.trees import MISSING, Tree

#: Modules of the extra `servers` of this package.
_SERVER_MODULES = ("fastapi", "itsdangerous", "aiohttp")


@dataclass
class Examined:
    """A server and its place in the configuration."""

    source: ServerSource
    server: ServerEntry
    tree: Tree
    #: the servers that name datasets: this one and its agents
    owners: list[ServerEntry]
    datasets: list[Dataset]

    @property
    def part(self) -> str:
        """The first word of the server's settings."""
        return "agent" if self.source.kind == AGENTS else "resources"

    @property
    def own_environment(self) -> Path:
        """The place of a virtual environment for this server alone."""
        return self.source.folder / ".venv"

    @property
    def own_python(self) -> str:
        """The Python of that environment."""
        return str(self.own_environment / "bin" / "python")

    def collect(self, *settings: str) -> str:
        """The command that plays the server with some settings."""
        typed = [word for setting in settings for word in ("--set", f"{self.part}.{setting}")]
        return shlex.join(["ludus", "collect", str(self.source.config_file or self.source.folder), *typed])


def needs_of(examined: Examined) -> list[Need]:
    """All needs of a server. Raises a `UserError` if its files cannot be read."""
    source = examined.source
    entry = (source.folder / str(examined.server.block.get("entrypoint") or ENTRY)).resolve()
    if not entry.is_relative_to(source.folder) or not entry.is_file():
        raise UserError(f"{examined.server.name}: entrypoint {entry} is not a file in {source.folder}")
    code = read_code(entry, [Path(place) for place in source.search_path])
    requirements = read_requirements(source.folder, source.root)
    return [
        *_packages(examined, requirements, code),
        *_models(examined),
        *_settings(examined),
        *_variables(code),
        *_data(examined),
        *container(code, examined.server.block, examined.tree, examined.collect("sandbox_provider={ludus: {}}")),
        *gpu(code, requirements),
        *network(code, examined.server.block),
    ]


def _packages(examined: Examined, requirements: Requirements, code: ServerCode) -> Iterator[Need]:
    """What the code imports and its files require: installed, missing, or here in another version."""
    installed, in_own = Installed(), ""
    state = _State(requirements, code, installed)
    own = own_environment(examined.own_environment) if state.missing or state.collisions else None
    if own is not None:  # the commands below were followed
        state, installed = _State(requirements, code, own), own
    if own is not None or state.collisions:
        in_own = f"{shlex.quote(examined.own_python)} -m "
    if state.collisions:
        yield Need("versions", False, "; ".join(state.collisions), _environment_commands(examined, requirements, code))
    if state.missing:
        named = ", ".join(map(str, state.missing))
        command = in_own + pip_install(requirements.arguments(state.missing))
        yield Need("packages", False, f"not installed: {named}", () if state.collisions else (command,))
    elif requirements.wanted and not state.collisions:
        count = len(requirements.wanted)
        why = f"{count} requirement{'s' * (count > 1)} installed{f' in {own.environment}' if own else ''}"
        yield Need("packages", True, why, (examined.collect(f"python={examined.own_python}"),) if own else ())
    if requirements.problems:
        yield Need("requirements", None, "; ".join(requirements.problems))
    if state.server_modules:
        command = in_own + install_command("servers", package="nemo-gym")
        yield Need("servers", False, f"not installed: {', '.join(state.server_modules)}", (command,))
    if place := code.where("ray"):
        met = installed.has_module("ray")
        yield Need("ray", met, f"{place} imports ray", () if met else (in_own + install_command("ray"),))
    if state.unexplained:
        yield Need("imports", False, "; ".join(state.unexplained))


class _State:
    """How the packages of one Python compare with what a server needs."""

    def __init__(self, requirements: Requirements, code: ServerCode, installed: Installed) -> None:
        versions = [(package, installed.version(package.name)) for package in requirements.wanted if package.name]
        self.missing = [package for package, version in versions if version is None]
        self.collisions = [
            f"{package.where} wants {package}, and {package.name} {version} is installed"
            for package, version in versions
            if version is not None and not package.admits(version)
        ]
        if not requirements.admits_python(installed.python):
            self.collisions.append(f"it wants Python {requirements.python}, and this is {installed.python}")
        self.server_modules = [module for module in _SERVER_MODULES if not installed.has_module(module)]
        self.unexplained: list[str] = []
        for module, place in code.imports.items():
            self._import(module, place, requirements, installed)
        for (module, name), place in code.our_names.items():
            if _is_offered(module) and not _has_name(module, name):
                self.unexplained.append(f"{place} imports {name} of {module}, which ludus-nemo-gym does not have")

    def _import(self, module: str, place: str, requirements: Requirements, installed: Installed) -> None:
        """Note a module that is not installed, unless a requirement that is noted provides it."""
        name = module.partition(".")[0]
        if name == OURS:
            if not _is_offered(module):
                self.unexplained.append(f"{place} imports {module}, which ludus-nemo-gym does not have")
        elif name not in (*_SERVER_MODULES, "ray") and requirements.explain(name) is None:
            if installed.has_module(name):
                return
            assumed = _assumed_package(name, place)
            if assumed is None:
                self.unexplained.append(f"{place} imports {module}: not installed, and no requirement names it")
            elif assumed.name not in [package.name for package in self.missing]:
                self.missing.append(assumed)


def _assumed_package(module: str, place: str) -> Wanted | None:
    """The package of a module, if NeMo Gym installs it itself."""
    package = distribution_of(module)
    return Wanted(package, (package,), place) if package in ASSUMED else None


def _is_offered(module: str) -> bool:
    """Whether this package has a module of `nemo_gym`."""
    import nemo_gym

    path = Path(nemo_gym.__path__[0]).joinpath(*module.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def _has_name(module: str, name: str) -> bool:
    """Whether a module of this package has a name. A module that cannot be imported here says nothing."""
    try:
        return name == "*" or hasattr(import_module(module), name) or _is_offered(f"{module}.{name}")
    except (ImportError, UserError):
        return True


def _environment_commands(examined: Examined, requirements: Requirements, code: ServerCode) -> tuple[str, ...]:
    """The commands that make a virtual environment for a server, and the one that uses it.

    The requirements are named one by one, because a file may also name NeMo Gym, which would replace this package.
    """
    place = str(examined.own_environment)
    create = ["python3", "-m", "venv", place]
    if not requirements.admits_python(Installed().python):
        create = ["uv", "venv", "--seed", "--python", requirements.python, place]
    ours = [install_command(), install_command("servers", package="nemo-gym")]
    nothing = _State(requirements, code, Installed(Path(os.devnull)))
    others = [package for package in nothing.missing if package not in requirements.wanted]
    theirs = pip_install(requirements.arguments([*requirements.wanted, *others]))
    return (
        shlex.join(create),
        *(f"{shlex.quote(examined.own_python)} -m {command}" for command in (*ours, theirs)),
        examined.collect(f"python={examined.own_python}"),
    )


def _models(examined: Examined) -> Iterator[Need]:
    """Judges and simulated users: model servers that nobody has named a model for."""
    fields: dict[str, list[str]] = {}
    for path, kind, name in references(examined.server.block):
        is_policy = examined.part == "agent" and (path in POLICY_FIELDS or name == POLICY_SERVER)
        if kind == MODELS and not is_policy:
            fields.setdefault("judge_model" if name == MISSING else name, []).append(path)
    for name, paths in fields.items():
        role = "simulated user" if "user" in paths[0] else "judge"
        setting = "judge=SPEC" if len(fields) == 1 else f"models.{name}=SPEC"
        yield Need(role, False, f"{paths[0]} asks a model, and none is set", (examined.collect(setting),))


def _settings(examined: Examined) -> Iterator[Need]:
    """Settings without a value: `???`, and `${...}` that leads nowhere."""
    server = examined.server
    names = {f"{path}.name" for path, _, name in references(server.block) if name == MISSING}
    tree = {server.name: examined.tree.get(server.name, {}), **examined.tree}  # own paths are noted first
    absent = resolve(tree).absent
    if examined.part == "agent":  # `--model` sets these
        absent = {key: path for key, path in absent.items() if key not in POLICY}
    empty = [path for path in missing_values(server.block) if path not in names]
    prefix = f"{server.name}.{server.kind}.{server.implementation}."
    referring = {path.removeprefix(prefix): key for key, path in absent.items() if path.startswith(prefix)}
    if empty or referring:
        commands = [_setter(key, path, examined) for path, key in referring.items()]
        commands += [examined.collect(*(f"{path}=VALUE" for path in empty))] if empty else []
        yield Need("settings", False, f"no value for {', '.join([*empty, *referring])}", tuple(commands))


def _variables(code: ServerCode) -> Iterator[Need]:
    """Environment variables without which the code cannot be imported."""
    missing = {name: place for name, place in code.variables.items() if name not in os.environ}
    if missing:
        why = ", ".join(f"{place} reads {name}, which is not set" for name, place in missing.items())
        yield Need("variables", False, why, tuple(f"export {name}=VALUE" for name in missing))


def _setter(key: str, path: str, examined: Examined) -> str:
    """The command that gives a value to what `${key}` refers to."""
    if key.startswith("oc.env:"):
        return f"export {key.removeprefix('oc.env:')}=VALUE"
    if is_secret_key(key) and "." not in key:  # every user of a machine can read a command line
        return f"echo {shlex.quote(f'{key}: VALUE')} >> env.yaml"
    return examined.collect(f"{path}=VALUE")


def _data(examined: Examined) -> Iterator[Need]:
    """Files of datasets that do not exist."""
    present = [dataset for dataset in examined.datasets if dataset.path is not None and dataset.path.is_file()]
    missing = [dataset for dataset in examined.datasets if dataset not in present]
    if not examined.datasets and examined.part == "resources":
        yield Need("data", False, "no dataset: its configuration names none, and data/example.jsonl does not exist")
    elif missing:
        why = f"missing: {', '.join(str(dataset.path) for dataset in missing)}"
        if present:
            why = f"{present[0].name} is here; {why}"
        commands = [command for dataset in missing if (command := _download(dataset, examined.owners))]
        yield Need("data", bool(present), why, tuple(commands))


def _download(dataset: Dataset, owners: list[ServerEntry]) -> str:
    """The command that downloads a dataset's file, if its configuration says from where."""
    for owner in owners:
        for entry in owner.block.get("datasets") or ():
            origin: Any = isinstance(entry, dict) and (entry.get("source") or entry.get("huggingface_identifier"))
            if isinstance(origin, dict) and str(entry.get("name")) == dataset.name and origin.get("artifact_fpath"):
                fields = (f"+{key}={origin.get(key)}" for key in ("repo_id", "artifact_fpath"))
                return shlex.join(["ng_download_dataset_from_hf", *fields, f"+output_fpath={dataset.path}"])
    return ""
