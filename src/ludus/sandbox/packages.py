"""Python packages that programs in a sandbox may import: those that a spec names, and their requirements.

The whole folder of packages is not shared: it may hold our own, with answers to tasks, and anything a user installed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from ludus.errors import not_installed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@lru_cache(maxsize=64)
def places(names: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders and files of distributions and of all that they require."""
    distributions: dict[str, Distribution] = {}
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in distributions:
            continue
        try:
            distributions[name] = package = distribution(name)
        except PackageNotFoundError as error:
            if name in names:
                raise not_installed(name, "the sandbox needs a package") from error
            continue  # required on other systems only
        queue += [_name(line) for line in package.requires or () if "extra ==" not in line]
    return tuple(sorted({place for package in distributions.values() for place in _places(package)}))


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match.group().lower() if match else requirement


def _places(package: Distribution) -> set[Path]:
    """The top folders and files of a distribution, without its metadata and its commands."""
    tops = {file.parts[0] for file in package.files or () if ".." not in file.parts and file.parts}
    roots = {Path(str(package.locate_file(top))) for top in tops if not top.endswith((".dist-info", ".egg-info"))}
    return {root for root in roots if root.exists() and root.name != "__pycache__"}
