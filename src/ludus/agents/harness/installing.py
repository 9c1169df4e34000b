"""Installs agent programs, once, into a cache: `ludus harness install`.

Each program with its version has a folder of its own, which sandboxes mount read-only. Programs from npm bring their
own Node along, so that they run in images without one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ludus.agents.harness.declaration import Declaration, declared, read_declaration
from ludus.errors import UserError
from ludus.sandbox.bases import cache_folder
from ludus.sandbox.buildah import locked
from ludus.sandbox.building import size_of
from ludus.sandbox.mounts import Mount, python_mounts
from ludus.sandbox.oci_python import is_linker, loaded_libraries

#: The version of Node that programs from npm run with, unless their declaration names another.
NODE = "22"

_DONE = ".installed"

#: A link to the folder of this machine's libraries, and where a sandbox sees that folder.
_LIBRARIES = ".libraries"
_LIBRARIES_INSIDE = "/opt/harness/libraries"

_BY_ENV = b"#!/usr/bin/env node"
_REAL_PYTHON = "bin/python.real"

#: Stands for the Python of a program from PyPI. In a sandbox it runs Python with the libraries of this machine: an
#: image may lack them, or have older ones. The commands that the program starts use those of the image.
_PYTHON = """#!/bin/sh
[ ! -d {inside} ] || exec {inside}/{linker} --library-path {own}:{inside} {python} "$@"
exec {python} "$@"
"""

MEND = "Mend that, and run it again"

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Installation:
    """A program in the cache."""

    folder: Path
    is_python: bool

    @property
    def place(self) -> str:
        """Where sandboxes see it."""
        return f"/opt/harness/{self.folder.name}"

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What a sandbox mounts."""
        if self.is_python:  # a virtual environment names its own path, so it keeps it
            if not (self.folder / _LIBRARIES).exists():
                return python_mounts(str(self.folder))
            libraries = Mount(os.path.realpath(self.folder / _LIBRARIES), _LIBRARIES_INSIDE)
            return (*python_mounts(str(self.folder), link=_REAL_PYTHON), libraries)
        return (Mount(str(self.folder), self.place),)

    @property
    def path(self) -> str:
        """The folders of its programs, inside a sandbox."""
        return f"{self._bin}:{self.node.rpartition('/')[0]}" if not self.is_python else self._bin

    def command(self, words: list[str]) -> list[str]:
        """A command inside a sandbox, whose first word may be the name of a program of this installation.

        The path of the sandbox comes first, so that the model's commands get the task's own Node and Python.
        """
        program = self.folder / ("bin" if self.is_python else "node_modules/.bin") / words[0]
        if "/" in words[0] or not program.is_file():
            return words
        return [f"{self._bin}/{words[0]}", *words[1:]]

    @property
    def _bin(self) -> str:
        return str(self.folder / "bin") if self.is_python else f"{self.place}/node_modules/.bin"

    @property
    def node(self) -> str:
        """Its Node, inside a sandbox."""
        return f"{self.place}/node_modules/node/bin/node"


def installation(declaration: Declaration) -> Installation | None:
    """The program of a declaration, if it is installed."""
    place = _folder(declaration)
    return Installation(place, declaration.install.pip is not None) if (place / _DONE).is_file() else None


def require(declaration: Declaration, typed: str) -> Installation:
    """The program of a declaration, which was named as `typed`. Raises a UserError if it is not installed."""
    installed = installation(declaration)
    if installed is None:
        raise UserError(f"{declaration.label} is not installed", f"Install it with: ludus harness install {typed}")
    return installed


def install(declaration: Declaration, progress: Progress | None = None) -> Installation:
    """Install the program of a declaration, unless it is installed. Another installation of it is waited for.

    `progress` is called with the seconds so far, about once a second.
    """
    folder = _folder(declaration)
    is_python = declaration.install.pip is not None
    with locked(_lock(declaration)):
        ready = installation(declaration)
        if ready is not None:
            return ready
        run = _Commands(declaration.label, progress)
        if is_python:  # at its final path, because it names it
            shutil.rmtree(folder, ignore_errors=True)
            _install_pip(declaration, folder, run)
            _bring_libraries(folder)
            (folder / _DONE).touch()
        else:
            _install_npm(declaration, folder, run)
    return Installation(folder, is_python)


def uninstall(declaration: Declaration) -> bool:
    """Remove the program of a declaration. Returns whether it was installed."""
    folder = _folder(declaration)
    with locked(_lock(declaration)):
        there = folder.exists()
        shutil.rmtree(folder, ignore_errors=True)
    return there


def survey() -> list[dict[str, Any]]:
    """The harnesses that come with Ludus, and which of them are installed."""
    rows = []
    for name in declared():
        declaration = read_declaration(name)
        wanted, there = declaration.install, installation(declaration)
        package = f"npm {wanted.npm}" if wanted.npm else f"PyPI {wanted.pip}"
        about: dict[str, Any] = {"version": wanted.version, "dialect": declaration.dialect, "package": package}
        size = size_of(there.folder) if there is not None else 0
        about |= {"about": declaration.about, "installed": there is not None, "bytes": size}
        rows.append({"name": name, **about})
    return rows


def _folder(declaration: Declaration) -> Path:
    return cache_folder() / "harness" / f"{declaration.name}-{declaration.install.version}"


def _lock(declaration: Declaration) -> Path:
    return cache_folder() / "harness" / ".locks" / _folder(declaration).name


def _install_npm(declaration: Declaration, folder: Path, run: _Commands) -> None:
    wanted = declaration.install
    also = {"node": NODE, **wanted.also}
    packages = [f"{wanted.npm}@{wanted.version}", *(f"{name}@{version}" for name, version in also.items())]
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"{declaration.label} comes from npm, which is not installed", "Install Node.js with npm")
    quietly = ["--no-audit", "--no-fund", "--loglevel=error"]
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        run([npm, "install", "--prefix", str(new), *quietly, *packages])
        _name_node(new, Installation(folder, is_python=False))
        (new / _DONE).touch()
        new.chmod(0o755)  # sandboxes run as another user
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _name_node(new: Path, installed: Installation) -> None:
    """Let programs name their own Node: the Node of the task comes first on the path."""
    for program in filter(Path.is_file, new.glob("node_modules/.bin/*")):
        if (script := program.read_bytes()).startswith(_BY_ENV):
            program.write_bytes(b"#!" + installed.node.encode() + script.removeprefix(_BY_ENV))


def _install_pip(declaration: Declaration, folder: Path, run: _Commands) -> None:
    wanted = declaration.install
    packages = [f"{wanted.pip}=={wanted.version}", *(f"{name}=={version}" for name, version in wanted.also.items())]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    python, problem = _python(wanted.python)
    mend = f"Install it, and put it on the PATH. With pyenv: PATH=$(pyenv prefix {wanted.python})/bin:$PATH"
    why = f"{declaration.label} needs Python {wanted.python}: {problem}"
    if uv is not None:
        command = [uv, "venv", "--quiet", "--seed", "--python", wanted.python or python, str(folder)]
        run(command, *((mend, f"{why}, and uv could not download it") if problem else ()))
        quietly = ["--quiet", "--compile-bytecode"]  # sandboxes cannot write it
        run([uv, "pip", "install", *quietly, "--python", str(folder / "bin/python"), *packages])
        return
    if problem:
        raise UserError(why, mend)
    run([python, "-m", "venv", str(folder)])
    run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *packages])


def _python(version: str | None) -> tuple[str, str]:
    """The Python of a version, or ours, and what is wrong with it: pyenv has commands for versions that are off."""
    path = shutil.which(f"python{version}") if version else sys.executable
    if path is None:
        return "", f"there is no python{version} on the PATH"
    starts = subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
    return path, "" if starts else f"{path} does not start"


def _bring_libraries(folder: Path) -> None:
    """Let the Python of a virtual environment run in images without its libraries."""
    python, real = folder / "bin/python", folder / _REAL_PYTHON
    linker = next(filter(is_linker, loaded_libraries(str(python))), None)
    if linker is None:
        return
    linker = os.path.realpath(linker)
    (folder / _LIBRARIES).symlink_to(os.path.dirname(linker))
    python.rename(real)
    own = shlex.quote(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(real))), "lib"))
    words = {"own": own, "inside": _LIBRARIES_INSIDE, "linker": os.path.basename(linker)}
    python.write_text(_PYTHON.format(**words, python=shlex.quote(str(real))))
    python.chmod(0o755)


class _Commands:
    """Runs the commands of one installation. Raises a UserError if one fails."""

    def __init__(self, label: str, progress: Progress | None) -> None:
        self._label = label
        self._progress = progress
        self._began = monotonic()

    def __call__(self, command: list[str], mend: str = MEND, why: str | None = None) -> None:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command, stdout=pipe, stderr=pipe, text=True, env=variables, start_new_session=True
            )
        except OSError as error:
            raise UserError(f"cannot run {command[0]}: {error.strerror}", "Check the installation") from error
        try:
            output, errors = self._wait(process)
        except BaseException:  # Ctrl-C: npm would go on
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode != 0:
            lines = [line for line in (errors or output).splitlines() if line.strip()]
            said = " ".join(" ".join(lines[-3:]).split())
            said = said if len(said) <= 300 else f"{said[:300]}..."
            raise UserError(why or f"{self._label} cannot be installed: {Path(command[0]).name} says: {said}", mend)

    def _wait(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        while True:
            try:
                return process.communicate(timeout=1.0)
            except subprocess.TimeoutExpired:
                if self._progress is not None:
                    self._progress(monotonic() - self._began)
