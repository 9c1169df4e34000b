"""The files of a repository as a mapping from path to bytes, and their way into a sandbox and out of it.

The files of a sandbox are hostile: only regular files with plain relative paths are taken, and their number and size
are limited.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from ludus.graders.repository.settings import SETTINGS
from ludus.sandbox.protocol import Sandbox

Tree = dict[str, bytes]

#: The limits of a working tree. A larger one cannot be judged.
MOST_FILES, MOST_BYTES = 5_000, 32 << 20

_TEST_FOLDERS = {"test", "tests", "testing"}
_TEST_SETTINGS = {*SETTINGS, "conftest.py", "noxfile.py"}
_STARTUP = {"sitecustomize.py", "usercustomize.py"}
_LEFT_OUT = {".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


class TreeTooLarge(ValueError):
    """A working tree that holds more than we are willing to read, or that its box does not show."""


def is_protected(path: str) -> bool:
    """Whether a model's change of a file does not count: tests, settings of test tools, and Python's start-up files."""
    place = PurePosixPath(path)
    name = place.name
    if name in _TEST_SETTINGS | _STARTUP or name.endswith(".pth"):
        return True
    if _TEST_FOLDERS.intersection(place.parts[:-1]):
        return True
    return name.startswith("test_") or place.stem.endswith("_test") or name in ("tests.py", "test.py")


def is_plain(path: str) -> bool:
    """Whether a path leads to a place inside the folder that it is relative to."""
    parts = path.split("/")
    if not path or len(path) > 1024 or "\0" in path or "\n" in path or "\\" in path:
        return False
    return not any(part in ("", ".", "..") or len(part) > 255 for part in parts)


async def write_tree(sandbox: Sandbox, tree: Mapping[str, bytes], folder: str) -> None:
    """Write the files of a tree into a folder under HOME. The times of files and folders are 0."""
    await sandbox.restore(_archive(tree, folder))
    await sandbox.set_times({folder, *(str(PurePosixPath(folder, path).parent) for path in tree)})


async def read_tree(sandbox: Sandbox, folder: str) -> Tree:
    """The files of a folder under HOME, without those that tools leave behind. Raises `TreeTooLarge`.

    The `tar` of an image belongs to the model, which may have replaced it.
    """
    try:
        return tree_of(await sandbox.snapshot(), folder)
    except (OSError, tarfile.TarError) as error:
        raise TreeTooLarge(str(error)) from error


def tree_of(archive: bytes, folder: str) -> Tree:
    """The regular files of a folder in a tar archive, each name of a file with several names.

    Symbolic links, devices and paths that lead elsewhere are left out.
    """
    tree: Tree = {}
    size = 0
    regular: dict[str, tarfile.TarInfo] = {}  # where the content of each name lies
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            path = member.name.removeprefix("./")
            source = regular.get(member.linkname.removeprefix("./")) if member.islnk() else member
            if source is None or not source.isreg():
                continue
            regular[path] = source
            inside = path.removeprefix(f"{folder}/")
            if inside == path or not is_plain(inside):
                continue
            if _LEFT_OUT.intersection(inside.split("/")) or inside.endswith(".pyc"):
                continue
            size += source.size
            if len(tree) >= MOST_FILES or size > MOST_BYTES:
                raise TreeTooLarge(f"more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
            content = members.extractfile(source)
            tree[inside] = content.read() if content is not None else b""
    return tree


def with_change(base: Mapping[str, bytes], changed: Mapping[str, bytes]) -> Tree:
    """A clean checkout with a model's change: protected files stay as they were, and none is added."""
    protected = {path: data for path, data in base.items() if is_protected(path)}
    taken = {str(parent) for path in protected for parent in PurePosixPath(path).parents}  # where no file can be
    mine = {path: data for path, data in changed.items() if not is_protected(path) and path not in taken}
    return {**mine, **protected}


def _archive(tree: Mapping[str, bytes], folder: str) -> bytes:
    """A tar archive whose files and folders all have the same time: what a model sees does not depend on the clock."""
    buffer = io.BytesIO()
    inner = {str(parent) for path in tree for parent in PurePosixPath(path).parents if parent.name}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for place in (folder, *(f"{folder}/{path}" for path in sorted(inner))):
            entry = tarfile.TarInfo(place)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path, data in tree.items():
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
