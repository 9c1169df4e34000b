"""Where files are looked for: NEMO_GYM_EXTRA_ROOTS, the working directory, the checkout around it, then Ludus's
installed environments."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ludus.errors import UserError
from ludus.folder import FILE, folders
from ludus_nemo_gym.checkouts import checkout_around
from ludus_nemo_gym.names import ENVIRONMENTS, KINDS, RESOURCES

ROOTS = "NEMO_GYM_EXTRA_ROOTS"
_ENVIRONMENT_PATH = re.compile(r"(?:resources_servers|environments)/([^/]+)/(.+)")


#: The checkout of a server that is being loaded from its folder.
_checkout: ContextVar[Path | None] = ContextVar("checkout", default=None)


def roots() -> list[Path]:
    """The folders that relative paths are searched in, in this order."""
    extra = [Path(place).expanduser() for place in os.environ.get(ROOTS, "").split(os.pathsep) if place.strip()]
    around = checkout_around(Path())
    places = [_checkout.get(), *extra, Path(), around if around != Path.cwd() else None]
    return [place for place in places if place is not None]


@contextmanager
def also_searched(checkout: Path | None) -> Iterator[None]:
    """Search relative paths in a checkout first, while this is entered."""
    token = _checkout.set(checkout)
    try:
        yield
    finally:
        _checkout.reset(token)


def normal(name: str) -> str:
    """A normalised relative path: `./a//b` is a/b."""
    return posixpath.normpath(name.strip())


def find_file(name: str) -> Path | None:
    """A file by its path: absolute, or relative to one of the roots."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path if path.is_file() else None
    return next((root / path for root in roots() if (root / path).is_file()), None)


def find_data(name: str) -> Path | None:
    """A dataset's file: on disk, or in the folder of an installed environment."""
    file = find_file(name)
    parts = _ENVIRONMENT_PATH.fullmatch(normal(name))
    if file is None and parts is not None and ".." not in parts[2].split("/"):
        folder = environment_folder(parts[1])
        file = folder / parts[2] if folder is not None and (folder / parts[2]).is_file() else None
    return file


def find_setting_file(name: str, implementation: str) -> Path | None:
    """The file that a setting of a resources server names: as it is, or relative to the server's folder."""
    return find_data(name) or find_data(f"resources_servers/{implementation}/{name}")


def environment_folder(name: str) -> Path | None:
    """The folder of an environment: yours in `resources_servers/` or `environments/`, else an installed one."""
    if not re.fullmatch(r"[\w-]+", name):
        return None
    for root in roots():
        for kind in ("resources_servers", "environments"):
            folder = root / kind / name
            if (folder / FILE).is_file():
                return folder
    return folders().get(name)


def own_environments() -> list[Path]:
    """The folders of your environments, which are in `resources_servers/` or `environments/` of a root."""
    kinds = ("resources_servers", "environments")
    own = (path.parent for root in roots() for kind in kinds for path in root.glob(f"{kind}/*/{FILE}"))
    return sorted(dict.fromkeys(own))


def environment_names() -> list[str]:
    """Every environment that a configuration can name."""
    return sorted({folder.name for folder in own_environments()} | folders().keys())


def all_names() -> list[str]:
    """Every environment that a configuration can name, and every resources server on disk."""
    return sorted({*environment_names(), *own_code("resources_servers")})


def foreign_code(kind: str, implementation: str, config_files: Iterable[str] = ()) -> Path | None:
    """The `app.py` of a server that is not Ludus's code: in a root, or in the checkout of a configuration file."""
    path = Path(kind, implementation, "app.py")
    if path.is_absolute() or ".." in path.parts:
        return None
    places = [*roots(), *_checkouts(config_files)]
    return next((place / path for place in places if (place / path).is_file()), None)


def own_code(kind: str) -> dict[str, Path]:
    """The folder of each server of a kind in a root whose code is an `app.py`, by implementation.

    That is `NAME`, or `GROUP/NAME` in a folder that is no server itself.
    """
    folders_by_name: dict[str, Path] = {}
    for root in roots():
        for path in sorted([*root.glob(f"{kind}/*/app.py"), *root.glob(f"{kind}/*/*/app.py")]):
            if not (path.parents[1] / "app.py").is_file():
                folders_by_name.setdefault(path.parent.relative_to(root / kind).as_posix(), path.parent)
    return folders_by_name


def folder_beside(name: str, marks: Iterable[str], config_files: Iterable[str]) -> Path | None:
    """A folder of a checkout that belongs to an environment and has one of the marks in it.

    The checkout is one of the roots, or the folder that a configuration file lies in.
    """
    checkouts = [*roots(), *_checkouts(config_files)]
    own = [checkout / kind / name for checkout in checkouts for kind in ("resources_servers", "environments")]
    places = (folder / part for folder in own for part in ("", "data"))
    return next((place.absolute() for place in places if any((place / mark).is_file() for mark in marks)), None)


def _checkouts(config_files: Iterable[str]) -> list[Path]:
    """The folders around configuration files."""
    files = [path for path in map(find_file, config_files) if path is not None]
    return [folder for path in files for folder in list(path.absolute().parents)[:4]]


def entry_folder(entrypoint: str) -> tuple[str, Path | None]:
    """The NAME of an entrypoint `KIND/NAME`, and its folder where it exists. Yours come before ours."""
    place = normal(entrypoint).removesuffix("/app.py")
    kind, _, name = place.partition("/")
    if kind in (*KINDS, ENVIRONMENTS) and kind != RESOURCES:
        code = foreign_code(kind, name)
        return name, code.parent if code is not None else None
    name = place.rpartition("/")[2]
    if not re.fullmatch(r"[\w-]+", name):
        raise UserError(f"{entrypoint} names no resources server", "Write it as +entrypoint=resources_servers/NAME")
    folder, code = environment_folder(name), foreign_code("resources_servers", name)
    return name, code.parent if code is not None and folder == folders().get(name) else folder
