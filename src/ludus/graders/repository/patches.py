"""Unified diffs: made from two trees, and applied to a tree without a shell, git or a fuzzy search."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ludus.graders.repository.trees import Tree, is_plain

_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_NO_NEWLINE = "\\ No newline at end of file"
_NOWHERE = "/dev/null"


class PatchError(ValueError):
    """A patch that cannot be read, or that does not fit the files."""


def make_patch(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """A unified diff from one tree to another. A file that is not UTF-8 is named, and its content is left out."""
    return "".join(
        section
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
        for section in _section(path, before.get(path), after.get(path))
    )


def _section(path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    yield f"diff --git a/{path} b/{path}\n"
    if old is None:
        yield "new file mode 100644\n"
    elif new is None:
        yield "deleted file mode 100644\n"
    try:
        left, right = (_lines((data or b"").decode()) for data in (old, new))
    except UnicodeDecodeError:
        yield f"Binary files a/{path} and b/{path} differ\n"
        return
    names = (f"a/{path}" if old is not None else _NOWHERE, f"b/{path}" if new is not None else _NOWHERE)
    for line in difflib.unified_diff(left, right, *names):
        yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n"


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only LF ends a line, unlike `str.splitlines`."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


@dataclass
class _Hunk:
    start: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass
class _FileChange:
    old_path: str | None
    new_path: str | None
    hunks: list[_Hunk] = field(default_factory=list)


def apply_patch(tree: Mapping[str, bytes], patch: str) -> Tree:
    """The tree after a unified diff. Every hunk must fit, at its line or moved as a whole. Raises `PatchError`."""
    result = dict(tree)
    for change in _changes(patch):
        old_path, new_path = change.old_path, change.new_path
        if old_path is not None and old_path not in result:
            raise PatchError(f"the patch changes {old_path}, which does not exist")
        if old_path is None and new_path in result:
            raise PatchError(f"the patch adds {new_path}, which exists already")
        before = result.pop(old_path) if old_path is not None else b""
        if new_path is not None:
            result[new_path] = _applied(before, change.hunks, new_path)
    return result


def paths_of(patch: str) -> set[str]:
    """The files that a patch touches."""
    return {path for change in _changes(patch) for path in (change.old_path, change.new_path) if path is not None}


def _applied(data: bytes, hunks: list[_Hunk], path: str) -> bytes:
    try:
        lines = _lines(data.decode())
    except UnicodeDecodeError as error:
        raise PatchError(f"{path} is not UTF-8") from error
    result: list[str] = []
    at = moved = 0
    for number, hunk in enumerate(hunks, start=1):
        wanted = max(hunk.start - (1 if hunk.old else 0) + moved, at)
        place = _place(lines, hunk.old, wanted, at)
        if place is None:
            raise PatchError(f"hunk {number} does not fit {path}")
        moved += place - wanted
        result += lines[at:place] + hunk.new
        at = place + len(hunk.old)
    return "".join(result + lines[at:]).encode()


def _place(lines: list[str], wanted: list[str], at: int, first: int) -> int | None:
    """The place of some lines that is nearest to `at`, not before `first`."""
    last = len(lines) - len(wanted)
    for distance in range(max(last - first, 0) + 1 + abs(at - first)):
        for place in (at - distance, at + distance):
            if first <= place <= last and lines[place : place + len(wanted)] == wanted:
                return place
    return None


def _changes(patch: str) -> Iterator[_FileChange]:
    lines = _lines(patch)
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            change = _FileChange(_path(line), _path(lines[at + 1]))
            at += 2
            while at < len(lines) and (match := _HUNK.match(lines[at])):
                at = _read_hunk(lines, at, match, change)
            if not change.hunks:
                raise PatchError(f"the patch has no hunk for {change.new_path or change.old_path}")
            yield change
        elif line.startswith(("GIT binary patch", "Binary files ", "rename from ", "copy from ")):
            raise PatchError(f"the patch has a part that is not supported: {line.strip():.80}")
        else:
            at += 1


def _read_hunk(lines: list[str], at: int, match: re.Match[str], change: _FileChange) -> int:
    """Read the hunk whose header stands at `at`, and return where the next begins."""
    start, old_left, new_left = int(match[1]), int(match[2] or 1), int(match[4] or 1)
    hunk = _Hunk(start)
    at += 1
    while old_left or new_left:
        line = lines[at] if at < len(lines) else ""
        kind, text = (line[:1], line[1:]) if line.strip("\n") else (" ", "\n")
        if not line or kind not in " +-":
            raise PatchError(f"a hunk of {change.new_path or change.old_path} is cut short")
        at += 1
        if at < len(lines) and lines[at].startswith("\\"):
            text = text.removesuffix("\n")
            at += 1
        if kind != "+":
            hunk.old.append(text)
            old_left -= 1
        if kind != "-":
            hunk.new.append(text)
            new_left -= 1
    change.hunks.append(hunk)
    return at


def _path(line: str) -> str | None:
    """The path of a `---` or `+++` line, without the first folder; None for a file that does not exist."""
    name = line[4:].rstrip("\n").split("\t")[0]
    if name == _NOWHERE:
        return None
    _, slash, path = name.partition("/")
    if not slash or not is_plain(path):
        raise PatchError(f"the patch names a path that is not allowed: {name:.80}")
    return path
