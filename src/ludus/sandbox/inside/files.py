"""Work on the files of a sandbox which no program in it can forge: no program is started, and no module of it imported.

This text runs in a fork of the supervisor (`Sandbox.work_on_files`), after HOME was removed from the search path. It
never asks for the names of users: the box's own settings would choose the libraries that are loaded for it.

    read    the content of a regular file
    write   stdin becomes a file
    list    what changed since a time: lines of JSON, one for each file, folder and link
    fetch   the contents of files, each after its length
    names   what folders hold
    lay     make files, folders and links; their contents follow in stdin
    resolve where links lead
    remove  files, links and whole folders
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

_PIECE = 1 << 20
_NOT_THERE = 44

#: What was shut to its own owner, with its mode: it is set back at the end.
_LET_IN: list[tuple[str, int]] = []


def _read(request: dict[str, Any]) -> None:
    try:
        is_file = stat.S_ISREG(os.stat(request["path"]).st_mode)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # such as a link to where the box may not look
        is_file = False
    if not is_file:
        os._exit(_NOT_THERE)
    with open(request["path"], "rb") as file:
        sys.stdout.buffer.write(file.read(request["most"]))


def _write(request: dict[str, Any]) -> None:
    path = request["path"]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o600)
    with os.fdopen(fd, "wb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a regular file")
        os.ftruncate(fd, 0)
        _copy_input(file.write)
        os.fchmod(fd, request["mode"])


def _copy_input(write: Callable[[bytes], Any], length: int | None = None) -> None:
    """Copy so many bytes of stdin, or all of it."""
    while length is None or length > 0:
        piece = sys.stdin.buffer.read(_PIECE if length is None else min(_PIECE, length))
        if not piece:
            return
        write(piece)
        length = None if length is None else length - len(piece)


def _list(request: dict[str, Any]) -> None:
    for path in request["roots"]:
        about = os.lstat(path) if os.path.lexists(path) else None
        if about is not None:
            entries = _below(path, about, request) if stat.S_ISDIR(about.st_mode) else _entry(path, about, request)
            for entry in entries:
                sys.stdout.write(json.dumps(entry) + "\n")


def _below(path: str, about: os.stat_result, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A folder and what lies in it, on its own file system. In a layered one an older folder holds nothing new."""
    pending, device = [(path, about)], about.st_dev
    while pending:
        path, about = pending.pop()
        changed = about.st_ctime >= request["since"]
        if about.st_dev != device or path in request["skip"] or (request["layered"] and not changed):
            continue
        inner = _scan(path, about)
        if changed:
            yield {"path": path, "kind": "folder", **_times(about), "names": [name for name, _ in inner]}
        for name, about in inner:
            below = os.path.join(path, name)
            if stat.S_ISDIR(about.st_mode):
                pending.append((below, about))
            else:
                yield from _entry(below, about, request)


def _entry(path: str, about: os.stat_result, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if about.st_ctime < request["since"]:
        return
    if stat.S_ISREG(about.st_mode):
        yield {"path": path, "kind": "file", **_times(about), "size": about.st_size}
    elif stat.S_ISLNK(about.st_mode):
        yield {"path": path, "kind": "link", **_times(about), "target": os.readlink(path)}


def _times(about: os.stat_result) -> dict[str, Any]:
    return {"mode": about.st_mode & 0o777, "mtime": about.st_mtime_ns}


def _scan(path: str, about: os.stat_result) -> list[tuple[str, os.stat_result]]:
    """The names in a folder and what they are."""
    _let_in(path, about.st_mode, 0o500)
    try:
        with os.scandir(path) as entries:
            return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError:
        return []


def _let_in(path: str, mode: int, needed: int) -> None:
    """Let the owner of a folder or file use it until the end."""
    if mode & needed != needed:
        os.chmod(path, stat.S_IMODE(mode) | 0o700)
        _LET_IN.append((path, stat.S_IMODE(mode)))


def _fetch(request: dict[str, Any]) -> None:
    for path in json.loads(sys.stdin.buffer.read()):
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            place = "/".join(parts[:count])
            _let_in(place, os.lstat(place).st_mode, 0o400 if place == path else 0o500)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read()
        sys.stdout.buffer.write(len(data).to_bytes(8, "big") + data)


def _names(request: dict[str, Any]) -> None:
    held = {}
    for path in json.loads(sys.stdin.buffer.read()):
        held[path] = os.listdir(path) if os.path.isdir(path) and not os.path.islink(path) else []
    sys.stdout.write(json.dumps(held))


def _lay(request: dict[str, Any]) -> None:
    entries = json.loads(sys.stdin.buffer.read(request["head"]))
    for entry in entries:
        path, kind = entry["path"], entry["kind"]
        if os.path.lexists(path) and (kind != "folder" or os.path.islink(path) or not os.path.isdir(path)):
            _remove_all(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            raise OSError(f"a link leads to the folder of {path}")
        if kind == "folder":
            os.makedirs(path, exist_ok=True)
            continue
        if kind == "link":
            os.symlink(entry["target"], path)
        else:
            with open(path, "xb") as file:
                _copy_input(file.write, entry["size"])
                os.fchmod(file.fileno(), entry["mode"])
        os.utime(path, ns=(entry["mtime"], entry["mtime"]), follow_symlinks=False)


def _modes(request: dict[str, Any]) -> None:
    """Set the modes of folders, the inner ones first: one that nobody may enter must be full by then."""
    for path, mode in reversed(json.loads(sys.stdin.buffer.read())):
        os.chmod(path, mode)


def _resolve(request: dict[str, Any]) -> None:
    paths = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps([[os.path.realpath(path), os.path.exists(path)] for path in paths]))


def _remove(request: dict[str, Any]) -> None:
    for path in json.loads(sys.stdin.buffer.read()):
        if os.path.lexists(path):
            _remove_all(path)


def _remove_all(path: str) -> None:
    """Remove a file or a link, or a folder with all that it holds, however deep."""
    pending = [path]
    while pending:
        place = pending[-1]
        if os.path.islink(place) or not os.path.isdir(place):
            os.unlink(pending.pop())
            continue
        os.chmod(place, 0o700)
        names = os.listdir(place)
        pending += [os.path.join(place, name) for name in names]
        if not names:
            os.rmdir(pending.pop())


_OPERATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "read": _read,
    "write": _write,
    "list": _list,
    "fetch": _fetch,
    "names": _names,
    "lay": _lay,
    "modes": _modes,
    "resolve": _resolve,
    "remove": _remove,
}


if __name__ == "__main__":
    try:
        _OPERATIONS[sys.argv[1]](json.loads(sys.argv[2]))
    except OSError as problem:
        sys.exit(str(problem.strerror or problem))
    finally:
        for place, mode in reversed(_LET_IN):
            os.chmod(place, mode)
