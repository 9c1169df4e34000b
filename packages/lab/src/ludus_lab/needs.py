"""What an environment of the lab needs from elsewhere, as `needs` in its `environment.yaml` says.

`needs` maps the name of a module, of a program or a path to the command that installs it. A missing one is an error of
one line that ends with the command.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ludus.errors import MissingExtra
from ludus.folder import read_file

#: Debian installs games outside the path of most users.
_PATH = os.pathsep.join([os.defpath, "/usr/games"])


def program(name: str) -> str | None:
    """The path of a program; None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=_PATH)


def missing(package: str) -> Iterator[tuple[str, str]]:
    """The needs of an environment that are not installed: the name of each, and the command that installs it.

    `package` is the environment's Python package: `ludus_lab.arc`.
    """
    for name, command in _needs(package).items():
        if not _installed(name):
            yield name, command


def require(package: str, *names: str) -> None:
    """Raise an error for the first need of the environment that is missing, of these `names` only if there are any."""
    for name, command in missing(package):
        if not names or name in names:
            raise MissingExtra(f"{name} is not installed", f"Install it with: {command}")


def _installed(name: str) -> bool:
    if name.startswith("/"):
        return Path(name).exists()
    return find_spec(name) is not None or program(name) is not None


@cache
def _needs(package: str) -> dict[str, str]:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return read_file(Path(spec.origin).parent).needs
