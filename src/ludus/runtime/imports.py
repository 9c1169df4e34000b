"""Imports an author's code by its name in `environment.yaml` or another settings file.

If that code raises, its author gets an `AuthorError` of one line with the file, the line number and the error;
`--debug` shows the traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from ludus.errors import AuthorError, UserError, did_you_mean, not_installed
from ludus.runtime.processes_child import make_package

BUILT_IN = Path(__file__).parents[1] / "environments"

#: The prefix of the names of modules that were loaded from an environment's file.
LOADED_FILE = "ludus_environment_"


def load_object(reference: str, folder: Path | None, base: type | None = None) -> Any:
    """The class or function `file.py:NAME` (a file in `folder`) or `package.module:NAME`."""
    module_name, _, name = reference.partition(":")
    if not name:
        raise UserError(f"{reference} must look like resources.py:Class or package.module:Class")
    if module_name.endswith(".py"):
        module = load_file((folder or Path()) / module_name)
    else:
        try:
            module = import_named(module_name)
        except ModuleNotFoundError as error:
            hint = f"Correct the name, or write FILE.py:{name} for a file of the environment's folder"
            raise UserError(f"cannot import {module_name}: {error}", hint) from error
    value = getattr(module, name, None)
    if value is None:
        names = [key for key, value in vars(module).items() if callable(value)]
        raise UserError(f"{module_name} has no {name}", did_you_mean(name, names))
    if base is not None and not (isinstance(value, type) and issubclass(value, base)):
        raise UserError(f"{reference} is not a subclass of {base.__name__}")
    return value


def import_named(name: str) -> ModuleType:
    """Import a module. Raises ModuleNotFoundError if it does not exist, and a UserError if its code raises."""
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, UserError):
        raise
    except BaseException as error:
        raise _import_error(error, name) from error


class _AlwaysCompiled(SourceFileLoader):
    """Compiles a file whenever it is loaded. Cached bytecode counts as fresh if the file's size and second of change
    are the same, so a verifier could be edited and judge by its old code, under the receipt of the new one."""

    source = b""  #: what was compiled

    def get_code(self, fullname: str) -> CodeType:
        """The code of the source as it is now."""
        self.source = self.get_data(self.path)
        code: CodeType = self.source_to_code(self.source, self.path)
        return code

    @property
    def is_stale(self) -> bool:
        """Whether the file has changed since it was compiled."""
        try:
            return self.source != self.get_data(self.path)
        except OSError:
            return True


class _FolderFinder:
    """Finds the files that an environment's file imports from its own folder, for `_AlwaysCompiled`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a file in an environment's folder; None for any other module."""
        if not name.startswith(LOADED_FILE) or not path:
            return None
        file = Path(next(iter(path)), f"{name.rpartition('.')[2]}.py")
        if not file.is_file():
            return None
        return importlib.util.spec_from_file_location(name, file, loader=_AlwaysCompiled(name, str(file)))


def load_file(path: Path, name: str | None = None) -> ModuleType:
    """Import a file: as part of `ludus` for a built-in environment, else as part of a package made of its folder.

    So files of a folder can import each other: `from .prices import total`. If one of them has changed since, all are
    imported anew. `name` is the module's name in another process.
    """
    path = path.resolve()
    if path.parent.parent == BUILT_IN:
        return importlib.import_module(f"ludus.environments.{path.parent.name}.{path.stem}")
    name = name or f"{_package_of(path.parent)}.{path.stem}"
    package = name.rpartition(".")[0]
    if stale_files(path.parent, package):
        for loaded in [other for other in sys.modules if other.startswith(f"{package}.")]:
            del sys.modules[loaded]
    if name in sys.modules:
        return sys.modules[name]
    make_package(package, str(path.parent))
    if _FolderFinder not in sys.meta_path:
        sys.meta_path.insert(0, _FolderFinder)
    spec = importlib.util.spec_from_file_location(name, path, loader=_AlwaysCompiled(name, str(path)))
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _import_error(error, str(path)) from error
    return module


def stale_files(folder: Path, package: str | None = None) -> list[Path]:
    """The files of an environment's folder that have changed since this process imported them."""
    prefix = f"{package or _package_of(folder.resolve())}."
    loaders = [module.__loader__ for name, module in sys.modules.copy().items() if name.startswith(prefix)]
    return [Path(loader.path) for loader in loaders if isinstance(loader, _AlwaysCompiled) and loader.is_stale]


def _package_of(folder: Path) -> str:
    return LOADED_FILE + blake2b(os.fsencode(folder), digest_size=6).hexdigest()


def declared_class(owner: type, name: str, usual: type[BaseModel], required: type[BaseModel] | None = None) -> Any:
    """The `Task` or `Config` class of `owner`, checked to be a pydantic model that can validate rows or settings.

    It must be a subclass of `required`, by default of `usual`. Errors recommend `usual`.
    """
    declared = getattr(owner, name)
    if not (isinstance(declared, type) and issubclass(declared, required or usual)):
        hint, wanted = f"Write class {name}(ludus.{usual.__name__})", usual.__name__
        raise UserError(f"{place_of(declared, owner)}: {owner.__name__}.{name} is not a subclass of {wanted}", hint)
    try:
        declared.model_rebuild()  # does nothing unless pydantic could not resolve an annotation when it made the class
    except (NameError, PydanticUserError) as error:
        what, hint = str(error).splitlines()[0].rstrip("."), "Import it" if isinstance(error, NameError) else ""
        raise UserError(f"{place_of(declared, owner)}: {owner.__name__}.{name}: {what}", hint) from error
    return declared


def place_of(*things: Any) -> str:
    """`FILE:LINE` of the first thing that has source code in a file."""
    for thing in things:
        try:
            thing = inspect.unwrap(thing)
            return f"{inspect.getsourcefile(thing)}:{inspect.getsourcelines(thing)[1]}"
        except (OSError, TypeError):  # generated code, or typed into a prompt
            continue
    return str(getattr(things[-1], "__module__", ""))


def author_error(error: BaseException, code: Callable[..., Any]) -> UserError:
    """The UserError for a function or class that raised, with the innermost line of its file in the traceback."""
    file = _file_of(code)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return _error_at(f"{file}:{lines[-1]}" if lines else place_of(code), error)


def describe(error: BaseException) -> str:
    """An error's type and text in one line. The text of a SyntaxError has no place: the caller names it."""
    try:
        text = error.msg if isinstance(error, SyntaxError) and error.lineno is not None else str(error)
        return f"{type(error).__name__}: {' '.join(text.split())[:2000]}".rstrip(": ")
    except Exception:  # its __str__ raises
        return type(error).__name__


def _import_error(error: BaseException, module: str) -> UserError:
    """The UserError for a module that raised, with the innermost line of its file in the traceback."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    frames, place = traceback.extract_tb(error.__traceback__), module
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    elif file := next((frame.filename for frame in frames if frame.name == "<module>"), None):
        place = f"{file}:{[frame.lineno for frame in frames if frame.filename == file][-1]}"
    if isinstance(error, (ImportError, AttributeError)):
        lacks_name = error.path if isinstance(error, ImportError) else getattr(error.obj, "__file__", None)
        if lacks_name in {frame.filename for frame in frames if frame.name == "<module>"}:  # it is half loaded
            return _circular_import(place, frames, lacks_name)
    return _error_at(place, error)


def _circular_import(place: str, frames: traceback.StackSummary, half_loaded: str) -> UserError:
    """The UserError for files that import each other, with the files in the order of their imports."""
    paths = list(dict.fromkeys(frame.filename for frame in frames if frame.name == "<module>"))
    files = [Path(path).name for path in paths[paths.index(half_loaded) :]]
    circle = " imports ".join([*files, files[0]]) if len(files) > 1 else f"{''.join(files)} imports itself"
    return AuthorError(f"{place}: a circular import: {circle}", "Move what they share into a third file")


def _error_at(place: str, error: BaseException) -> UserError:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if isinstance(name, str) and name and not name.startswith(LOADED_FILE):
        return not_installed(name[:80], place, _hint_beside(name, Path(place.rpartition(":")[0]).parent))
    return AuthorError(f"{place}: {describe(error)}")


def _hint_beside(name: str, folder: Path) -> str:
    """How to import a file or folder from the importing file's own folder."""
    beside = name.isidentifier() and len(name) <= 80 and ((folder / f"{name}.py").is_file() or (folder / name).is_dir())
    return f"For the one beside this file, write: from . import {name}" if beside else ""


def _file_of(code: Any) -> str | None:
    try:
        return inspect.getsourcefile(code)
    except TypeError:
        return None
