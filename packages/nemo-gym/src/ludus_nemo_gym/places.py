"""Where files are: NEMO_GYM_EXTRA_ROOTS, the working directory, and, by NeMo Gym's paths, what Ludus brings along."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from ludus.errors import UserError
from ludus.folder import FILE, folders

ROOTS = "NEMO_GYM_EXTRA_ROOTS"
_IN_AN_ENVIRONMENT = re.compile(r"(?:resources_servers|environments)/([^/]+)/(.+)")


def roots() -> list[Path]:
    """The folders that relative paths are looked for in, the first one first."""
    extra = [Path(each).expanduser() for each in os.environ.get(ROOTS, "").split(os.pathsep) if each.strip()]
    return [*extra, Path()]


def normal(name: str) -> str:
    """A relative path without detours: `./a//b` is a/b."""
    return posixpath.normpath(name.strip())


def find_file(name: str) -> Path | None:
    """A file by its path, absolute or below one of the roots."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path if path.is_file() else None
    return next((root / path for root in roots() if (root / path).is_file()), None)


def find_data(name: str) -> Path | None:
    """A dataset's file: on disk, or the one that an environment of ours has under that path."""
    found = find_file(name)
    inside = _IN_AN_ENVIRONMENT.fullmatch(normal(name))
    if found is None and inside is not None and ".." not in inside[2].split("/"):
        folder = environment_folder(inside[1])
        found = folder / inside[2] if folder is not None and (folder / inside[2]).is_file() else None
    return found


def environment_folder(name: str) -> Path | None:
    """The folder of an environment: one's own in `resources_servers/`, or else one that is installed."""
    if not re.fullmatch(r"[\w-]+", name):
        return None
    for root in roots():
        for kind in ("resources_servers", "environments"):
            folder = root / kind / name
            if (folder / FILE).is_file():
                return folder
    return folders().get(name)


def environment_names() -> list[str]:
    """Every environment that a configuration can name."""
    own = {path.parent.name for root in roots() for path in root.glob(f"resources_servers/*/{FILE}")}
    return sorted(own | folders().keys())


def foreign_code(kind: str, implementation: str) -> Path | None:
    """An `app.py` on disk: a server that is somebody else's code."""
    return find_file(f"{kind}/{implementation}/app.py")


def entry_folder(entrypoint: str) -> tuple[str, Path | None]:
    """The name of the environment that `resources_servers/NAME` stands for, and its folder where it exists."""
    name = normal(entrypoint).removesuffix("/app.py").rpartition("/")[2]
    if not re.fullmatch(r"\w+", name):
        raise UserError(f"{entrypoint} names no resources server", "Write it as +entrypoint=resources_servers/NAME")
    return name, environment_folder(name)
