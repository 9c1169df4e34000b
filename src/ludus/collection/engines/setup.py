"""What a worker process needs to play the rollouts of a collection, sent to it as a pickle.

Classes and functions travel by name. A class of an environment's folder is loaded from its file. Classes that no other
process can import, because a script or a notebook defines them, are refused with one line.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from ludus.collection.engines.playing import PlaySettings
from ludus.collection.options import Options
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.runtime.imports import LOADED_FILE, load_file

#: The name of the folder in which code travels to other machines.
SHIPPED = "ludus_shipped"

_HINT = "Move it to a module or an environment's folder, or leave workers out"


@dataclass
class WorkerSetup:
    """The setup of a worker: the environments and the options of the collection. The model is a spec, or a `Model` that
    can be pickled. With `checkpoint`, the turns of rollouts in flight are sent to the collection."""

    environments: list[Environment]
    options: Options = field(default_factory=Options)
    checkpoint: bool = False

    def play_settings(self, concurrency: int, adaptive_start: int) -> PlaySettings:
        """Open the model. The numbers are this worker's part of the collection's."""
        play = self.options.play
        model = open_model(play.model, {} if isinstance(play.model, Model) else play.model_settings)
        return PlaySettings(self.options, model, concurrency, adaptive_start)

    def wired(self) -> dict[str, Environment]:
        """The environments by name, on their servers if there are any."""
        by_name = {environment.name: environment for environment in self.environments}
        resources, agent = self.options.play.resources, self.options.play.agent
        if resources is None and agent is None:
            return by_name
        from ludus.remote.wiring import on_servers  # imported here: loading HTTP takes a third of a second

        return {name: on_servers(local, resources=resources, agent=agent) for name, local in by_name.items()}

    def encode(self) -> bytes:
        """The setup as bytes, with the search path of this process and the files of the environments' classes."""
        pickled, names = self.pickle()
        return pickle.dumps((sys.path, {name: str(file) for name, file in names.files().items()}, {}, pickled))

    def encode_shipped(self, pickled: bytes, files: dict[str, str], folders: dict[str, str]) -> bytes:
        """The setup as bytes for a machine with a copy of the code. Files and folders are relative to the copy."""
        return pickle.dumps((None, files, folders, pickled))

    def pickle(self) -> tuple[bytes, ModuleNames]:
        """The setup as a pickle, and the modules that it names."""
        environments = [replace(environment, datasets=[], data={}) for environment in self.environments]
        model, buffer = self.options.play.model, io.BytesIO()
        if isinstance(model, Model):
            model = copy.copy(model)
            model._users = model.observer = None
        options = self.options.replace(model=model, input=None, prompt=None, ray_env=None)  # rows travel one by one
        pickler = _Pickler(buffer)
        try:
            pickler.dump(replace(self, environments=environments, options=options))
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            cause = f"a worker process cannot get a copy of the model or the environment: {error}"
            raise UserError(cause, "Name the model as a text, or leave workers out") from error
        return buffer.getvalue(), pickler.names

    @staticmethod
    def decode(data: bytes | memoryview) -> WorkerSetup:
        """The setup in a worker. Sets the search path and loads the files before the classes are looked up."""
        path, files, folders, setup = pickle.loads(data)
        root = Path()
        if path is not None:
            sys.path[:] = path
        else:
            root = shipped_root()
            sys.path.insert(0, str(root / "modules"))
        for name, file in files.items():
            load_file(root / file, name)
        decoded: WorkerSetup = pickle.loads(setup)
        for environment in decoded.environments:
            if (copied := folders.get(str(environment.folder))) is not None:
                environment.folder = root / copied
        return decoded


def shipped_root() -> Path:
    """The folder with the copy of the code on this machine."""
    return next(Path(folder, SHIPPED) for folder in sys.path if Path(folder, SHIPPED).is_dir())


class ModuleNames(set[str]):
    """The names of the modules whose classes and functions a pickle needs."""

    def files(self) -> dict[str, Path]:
        """The modules that were loaded from a file of an environment, with their files."""
        return {name: file for name in sorted(self) if name.startswith(LOADED_FILE) and (file := module_file(name))}


def module_file(name: str) -> Path | None:
    """The file of a module that is loaded."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file is not None else None


class _Pickler(pickle.Pickler):
    """Notes the modules of classes and functions, and refuses what another process cannot import."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.names = ModuleNames()

    def reducer_override(self, value: Any) -> Any:
        """Called for every object that pickle does not know. Only classes and functions are checked."""
        if isinstance(value, (type, FunctionType)):
            module, name = value.__module__, value.__qualname__
            if module == "__main__":
                raise UserError(f"a worker process cannot import {name}: it is defined in the main script", _HINT)
            if "<" in name:
                raise UserError(f"a worker process cannot import {module}.{name}: it is defined in a function", _HINT)
            self.names.add(module)
        return NotImplemented
