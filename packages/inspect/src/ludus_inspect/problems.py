"""Why a task could not be made, in one line with a remedy."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from ludus.errors import MissingExtra, UserError, did_you_mean, not_installed
from ludus_inspect.settings import InspectConfig

#: Exceptions of those who look for data on the network, by the names of their classes.
_OFFLINE = {
    "ConnectionError",
    "ConnectError",
    "ConnectTimeout",
    "gaierror",
    "HfHubHTTPError",
    "HTTPError",
    "LocalEntryNotFoundError",
    "MaxRetryError",
    "OfflineModeIsEnabled",
    "ProxyError",
    "URLError",
}
_OFFLINE_WORDS = ("couldn't reach", "cannot find the requested files", "name resolution", "connection error", "offline")


def problem(config: InspectConfig, told: dict[str, Any]) -> UserError:
    """The error for what a worker told about a task that it could not make."""
    task, kinds, text = config.task.text, told["kind"].split(","), told["text"]
    place = told["place"] or task
    if told["missing"].partition(".")[0] == "inspect_ai":
        return no_inspect(config)
    if "NoSuchTask" in kinds:
        return _no_such_task(config, text.removeprefix("NoSuchTask").removeprefix(": ").split())
    if told["missing"]:
        return not_installed(told["missing"], place)
    if not _OFFLINE.isdisjoint(kinds) or any(word in text.lower() for word in _OFFLINE_WORDS):
        hint = "Run it where its data can be reached, or name local data: --set resources.args.NAME=VALUE"
        return UserError(f"{task} needs the network to load its dataset: {text:.300}", hint)
    if "ImportError" in kinds:
        return UserError(f"{place}: {text:.300}", f"Install what it names: {pip_install(config.python, 'PACKAGE')}")
    if kinds[0] == "TypeError" and "argument" in text:
        return UserError(f"{place}: {text:.300}", "Correct --set resources.args.NAME=VALUE")
    return UserError(f"{place}: {text:.400}", "Mend the task, or check its parameters: --set resources.args.NAME=VALUE")


def no_inspect(config: InspectConfig) -> UserError:
    """The error for a Python without inspect-ai."""
    python = config.python or sys.executable
    return MissingExtra("inspect-ai is not installed", f"Install it with: {pip_install(python, 'inspect-ai')}")


def pip_install(python: str, package: str) -> str:
    """The command that installs a package into a Python."""
    return f"{shlex.quote(python)} -m pip install {shlex.quote(package)}" if python else f"pip install {package}"


def _no_such_task(config: InspectConfig, known: list[str]) -> UserError:
    task = config.task
    if task.file is not None:
        if "@" not in task.text and known:
            hint = " or ".join(f"inspect:{task.text}@{name}" for name in known[:5])
            return UserError(f"{task.file} has several tasks", f"Name one: {hint}")
        return UserError(f"{task.file} has no task {task.name}", "Write a function with @task")
    if not known:
        package = task.package.replace("_", "-")
        hint = f"Install it with: {pip_install(config.python, package)}, or write inspect:path/to/file.py@task"
        return UserError(f"no installed package has tasks of Inspect named {task.package}/...", hint)
    return UserError(
        f"{task.package} has no task {task.name}", did_you_mean(task.name, [name.partition("/")[2] for name in known])
    )
