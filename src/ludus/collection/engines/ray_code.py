"""How code reaches the nodes of a Ray cluster: through the runtime environment of the actors.

Ludus itself, the folders of the environments, and the modules of their classes that are not installed are copied into
one folder, which Ray sends to every node once. A cluster on this machine needs no copy. What pip must install on the
nodes is declared by environments (`worker.packages`) or given as a runtime environment.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import ludus
from ludus.collection.engines.setup import SHIPPED, ModuleNames, WorkerSetup, module_file
from ludus.errors import UserError
from ludus.runtime.settings import read_yaml

#: The package as Ray sends it, and what is never sent along with a folder.
_LUDUS = Path(ludus.__file__).parent
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "runs", "*.pyc")

#: Ray refuses more than this. Data that is larger belongs on a disk that all nodes mount.
MAX_BYTES = 200 << 20


class Code:
    """The code of a collection. `setup` is what a worker gets. With `shipped`, nodes get a copy of the code, which is
    deleted here when the context manager ends."""

    def __init__(self, setup: WorkerSetup, *, shipped: bool) -> None:
        self.folders: dict[str, str] = {}  #: where the environments' folders are in the copy
        self._folder: Path | None = None
        if not shipped:
            self.setup = setup.encode()
            return
        pickled, names = setup.pickle()
        self._folder = Path(tempfile.mkdtemp(prefix="ludus-code-"))
        root = self._folder / SHIPPED
        (root / "modules").mkdir(parents=True)
        try:
            self.folders = _copied_folders(root, setup)
            files = _copied_files(root, names, self.folders)
            for name in {module.partition(".")[0] for module in (*names, *_named_by(setup.options.play.model))}:
                _copy_module(root / "modules", name)
            size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
            if size > MAX_BYTES:
                hint = "Move data to a disk that all nodes mount"
                raise UserError(f"the environments take {size >> 20} MB, more than is sent to Ray nodes", hint)
        except BaseException:
            self._delete()
            raise
        self.setup = setup.encode_shipped(pickled, files, self.folders)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._delete()

    def runtime_environment(self, own: dict[str, Any], packages: list[str]) -> dict[str, Any]:
        """Ray's runtime environment of the actors: the user's own, the code, and the packages."""
        runtime = dict(own)
        if self._folder is not None:
            runtime["py_modules"] = [*own.get("py_modules", []), str(_LUDUS), str(self._folder / SHIPPED)]
        if packages:
            if "uv" in runtime or "conda" in runtime or isinstance(runtime.get("pip"), str):
                problem = f"the environments declare packages ({', '.join(packages)})"
                raise UserError(f"{problem}, and the runtime environment has no list `pip`", "List them there too")
            pip = runtime.get("pip", [])
            if isinstance(pip, dict):
                runtime["pip"] = {**pip, "packages": [*pip.get("packages", []), *packages]}
            else:
                runtime["pip"] = [*pip, *packages]
        return runtime

    def _delete(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _copied_folders(root: Path, setup: WorkerSetup) -> dict[str, str]:
    """Copy the folders of environments that are not part of Ludus. Returns where each one is in the copy."""
    copies: dict[str, str] = {}
    for environment in setup.environments:
        folder = environment.folder
        if folder is not None and not folder.is_relative_to(_LUDUS) and str(folder) not in copies:
            copies[str(folder)] = f"folders/{len(copies)}"
            shutil.copytree(folder, root / copies[str(folder)], ignore=_LEFT_OUT)
    return copies


def _copied_files(root: Path, names: ModuleNames, folders: dict[str, str]) -> dict[str, str]:
    """Where the files of the environments' classes are in the copy. A file outside of a folder is copied too."""
    copies = {}
    for name, file in names.files().items():
        inside = [(folder, copied) for folder, copied in folders.items() if file.is_relative_to(folder)]
        if inside:
            folder, copied = max(inside, key=lambda entry: len(entry[0]))
            copies[name] = str(Path(copied, file.relative_to(folder)))
        else:
            copies[name] = f"files/{name}.py"
            (root / "files").mkdir(exist_ok=True)
            shutil.copyfile(file, root / copies[name])
    return copies


def _copy_module(to: Path, name: str) -> None:
    """Copy a module or a package, unless it is part of Python, of Ludus or installed."""
    file = module_file(name)
    installed = [Path(sysconfig.get_path(scheme)) for scheme in ("stdlib", "platstdlib", "purelib", "platlib")]
    if file is None or name == "ludus" or name in sys.stdlib_module_names:
        return
    if file.is_relative_to(_LUDUS) or any(map(file.is_relative_to, installed)) or "site-packages" in file.parts:
        return
    if file.name == "__init__.py":
        shutil.copytree(file.parent, to / name, ignore=_LEFT_OUT)
    elif name.isidentifier() and not name.startswith("ludus_environment_"):
        shutil.copyfile(file, to / f"{name}.py")


def _named_by(model: Any) -> Iterable[str]:
    """The module that a spec such as `scripted:answers:respond` names."""
    parts = model.split(":") if isinstance(model, str) else []
    return [parts[1]] if len(parts) == 3 and parts[0] == "scripted" else []


def read_runtime_environment(source: str | Path | dict[str, Any]) -> dict[str, Any]:
    """A runtime environment: a mapping, or a YAML file that holds one."""
    content = read_yaml(Path(source)) if isinstance(source, (str, Path)) else source
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        hint = "See docs/ray.md"
        raise UserError(f"{source!s:.80} must hold a mapping, such as pip: [PACKAGE]", hint)
    return content
