"""Installs agent programs, once, into a cache: `ludus harness install`.

Each program with its version has a folder of its own, which sandboxes mount read-only. Programs from npm bring their
own Node along, so that they run in images without one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ludus.agents.harness.declaration import Declaration
from ludus.errors import UserError
from ludus.sandbox.bases import cache_folder
from ludus.sandbox.mounts import Mount, python_mounts

#: The version of Node that programs from npm run with, unless their declaration names another.
NODE = "22"

_DONE = ".installed"


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
            return python_mounts(str(self.folder))
        return (Mount(str(self.folder), self.place),)

    @property
    def path(self) -> str:
        """The folders of its programs, inside a sandbox."""
        if self.is_python:
            return str(self.folder / "bin")
        return f"{self.place}/node_modules/.bin:{self.place}/node_modules/node/bin"


def installation(declaration: Declaration) -> Installation | None:
    """The program of a declaration, if it is installed."""
    place = _folder(declaration)
    return Installation(place, declaration.install.pip is not None) if (place / _DONE).is_file() else None


def require(declaration: Declaration, typed: str) -> Installation:
    """The program of a declaration, which was named as `typed`. Raises a UserError if it is not installed."""
    found = installation(declaration)
    if found is None:
        raise UserError(f"{declaration.label} is not installed", f"Install it with: ludus harness install {typed}")
    return found


def install(declaration: Declaration) -> Installation:
    """Install the program of a declaration, unless it is installed."""
    ready = installation(declaration)
    if ready is not None:
        return ready
    folder = _folder(declaration)
    folder.parent.mkdir(parents=True, exist_ok=True)
    is_python = declaration.install.pip is not None
    if is_python:  # at its final path, because it names it
        shutil.rmtree(folder, ignore_errors=True)
        _install_pip(declaration, folder)
        (folder / _DONE).touch()
    else:
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            _install_npm(declaration, new)
            (new / _DONE).touch()
            new.chmod(0o755)  # sandboxes run as another user
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return Installation(folder, is_python)


def uninstall(declaration: Declaration) -> bool:
    """Remove the program of a declaration. Returns whether it was installed."""
    folder = _folder(declaration)
    there = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return there


def _folder(declaration: Declaration) -> Path:
    return cache_folder() / "harness" / f"{declaration.name}-{declaration.install.version}"


def _install_npm(declaration: Declaration, folder: Path) -> None:
    wanted = declaration.install
    also = {"node": NODE, **wanted.also}
    packages = [f"{wanted.npm}@{wanted.version}", *(f"{name}@{version}" for name, version in also.items())]
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"{declaration.label} comes from npm, which is not installed", "Install Node.js with npm")
    quietly = ["--no-audit", "--no-fund", "--loglevel=error"]
    _run(declaration, [npm, "install", "--prefix", str(folder), *quietly, *packages])


def _install_pip(declaration: Declaration, folder: Path) -> None:
    wanted = declaration.install
    packages = [f"{wanted.pip}=={wanted.version}", *(f"{name}=={version}" for name, version in wanted.also.items())]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is not None:
        _run(declaration, [uv, "venv", "--quiet", "--seed", "--python", wanted.python or sys.executable, str(folder)])
        quietly = ["--quiet", "--compile-bytecode"]  # sandboxes cannot write it
        _run(declaration, [uv, "pip", "install", *quietly, "--python", str(folder / "bin/python"), *packages])
        return
    python = shutil.which(f"python{wanted.python}") if wanted.python else sys.executable
    if python is None:
        raise UserError(f"{declaration.label} needs Python {wanted.python}", f"Install python{wanted.python}, or uv")
    _run(declaration, [python, "-m", "venv", str(folder)])
    _run(declaration, [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *packages])


def _run(declaration: Declaration, command: list[str]) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    except OSError as error:
        raise UserError(f"cannot run {command[0]}: {error.strerror}", "Check the installation") from error
    if ended.returncode != 0:
        lines = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
        said = " ".join(" ".join(lines[-3:]).split())[-300:]
        name = Path(command[0]).name
        raise UserError(f"{declaration.label} cannot be installed: {name} says: {said}", "Mend that, and run it again")
