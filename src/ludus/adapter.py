"""Adapters: what other people's tools call an environment, as one of ours.

A package registers a function in the entry point group `ludus.adapters`. The function gets a path or another text, and
returns an `Environment`, or None if the text names nothing of its kind. The name of the entry may also be typed in
front of the text, with a colon.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_package
from ludus.folder import FILE

GROUP = "ludus.adapters"


def adapt(which: str) -> Any:
    """The environment that an adapter makes of a text; None if the text is a name, or a folder of ours."""
    adapters = {entry.name: entry for entry in entry_points(group=GROUP)}
    prefix, _, rest = which.partition(":")
    if prefix in adapters and rest:
        environment = _load(adapters[prefix])(rest)
        if environment is None:
            raise UserError(f"{rest:.200} is not a folder that the adapter {prefix} knows", "Check the path")
        return environment
    if not _is_other_folder(which):
        return None
    made = (_load(entry)(which) for entry in adapters.values())
    environment = next((environment for environment in made if environment is not None), None)
    if environment is None and (Path(which) / "app.py").is_file() and (Path(which) / "configs").is_dir():
        raise missing_package(f"what plays {which:.200}, a server for NeMo Gym,", "nemo-gym")
    return environment


def _load(entry: EntryPoint) -> Callable[[str], Any]:
    function: Callable[[str], Any] = entry.load()
    return function


def _is_other_folder(which: str) -> bool:
    """Whether a text is the path of a file or folder that has no `environment.yaml`."""
    path = Path(which)
    try:
        if path.name == FILE or (path / FILE).is_file():
            return False
        return path.is_dir() or ("/" in which and path.is_file())
    except (OSError, ValueError):  # a text that cannot be a path
        return False
