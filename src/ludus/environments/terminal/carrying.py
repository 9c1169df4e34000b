"""What is carried from the agent's box into the judge's: its changes to files, as far as the judge may see them.

They are taken when no process of the agent's is left, and stay with us until they are laid out in the judge's box, so
nothing can change them in between. `seal` is the digest of all that was taken.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.environments.terminal.places import Places, is_below
from ludus.environments.terminal.settings import Artifact
from ludus.graders.repository import write_tree
from ludus.sandbox import Sandbox
from ludus.sandbox.protocol import HOME

#: Where an agent may always leave what the judge should see.
PUBLISHED = Artifact(source="/logs/artifacts")

#: Files that are carried at most, and the bytes that travel at once.
_MOST_FILES, _PIECE = 200_000, 32 << 20

#: What nobody may declare: the judge's own files.
_NEVER = ("/tests", "/logs/verifier")

#: The longest list of changes.
_LIST_BYTES = 64 << 20

Entry = dict[str, Any]


@dataclass(frozen=True)
class Carried:
    """Changes that were taken from an agent's box."""

    entries: list[Entry]
    contents: dict[str, bytes]
    declared: Sequence[str]  #: the paths of artifacts
    places: Places | None = None  #: None if only what was declared is carried
    left_out: Sequence[str] = ()  #: files that the agent changed and the judge does not see

    @property
    def seal(self) -> str:
        """A digest of all that is carried."""
        digest = hashlib.sha256(json.dumps(self.entries, sort_keys=True).encode())
        for path in sorted(self.contents):
            digest.update(hashlib.sha256(self.contents[path]).digest())
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """How many bytes are carried."""
        return sum(map(len, self.contents.values()))

    async def lay_out(self, sandbox: Sandbox) -> None:
        """Make the changes in the judge's box, and take links away that lead to what only the judge has."""
        folders = {entry["path"]: entry for entry in self.entries if entry["kind"] == "folder"}
        if self.places is not None:
            await self._remove_what_is_gone(sandbox, folders)
        for piece in self._pieces():
            head = json.dumps(piece).encode()
            data = b"".join(self.contents[entry["path"]] for entry in piece if entry["kind"] == "file")
            await _work(sandbox, "lay", {"head": len(head)}, head + data)
        await self._remove_bad_links(sandbox)
        await _work(sandbox, "modes", {}, [[path, entry["mode"]] for path, entry in folders.items() if path != "/"])

    def _pieces(self) -> Iterator[list[Entry]]:
        """The entries in parts that are not too large. Links come last, so that nothing is written through one."""
        piece, size = list[Entry](), 0
        for entry in sorted(self.entries, key=lambda entry: bool(entry["kind"] == "link")):
            piece.append(entry)
            size += len(self.contents.get(entry["path"], b"")) + 200
            if size > _PIECE:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    async def _remove_what_is_gone(self, sandbox: Sandbox, folders: dict[str, Entry]) -> None:
        """Remove what the agent removed of the image."""
        assert self.places is not None
        held = await _work(sandbox, "names", {}, list(folders))
        gone = []
        for folder, names in held.items():
            missing = sorted(set(names) - set(folders[folder]["names"]))
            paths = [posixpath.join(folder, name) for name in missing]
            gone += [path for path in paths if self.places.is_carried(path)]
        if gone:
            await _work(sandbox, "remove", {}, gone)

    async def _remove_bad_links(self, sandbox: Sandbox) -> None:
        """A link to `/tests/expected.csv`, or to what a test script writes, would be the answer to every test."""
        links = [entry["path"] for entry in self.entries if entry["kind"] == "link"]
        if not links:
            return
        where = await _work(sandbox, "resolve", {}, links)
        bad = [path for path, target in zip(links, where, strict=True) if not self._may_lead(*target)]
        if bad:
            await _work(sandbox, "remove", {}, bad)

    def _may_lead(self, target: str, is_there: bool) -> bool:
        """Whether a link may stay. In an image of the judge's own, none may lead out of the artifacts."""
        if any(is_below(target, path) for path in self.declared):
            return True
        return self.places is not None and self.places.may_lead(target, is_there)


async def taken(sandbox: Sandbox, artifacts: Sequence[Artifact], places: Places | None, since: float) -> Carried:
    """What the judge may see of an agent's box: declared artifacts and, with places, all changes that are carried.

    Raises `OSError` if that is too much.
    """
    entries: dict[str, Entry] = {}
    left_out: list[str] = []
    if places is not None:
        for entry in await _listed(sandbox, ["/"], since):
            path, kind = entry["path"], entry["kind"]
            if path == "/" or places.is_carried(path, kind):
                entries[path] = entry
            elif kind != "folder" and places.is_worth_a_word(path):
                left_out.append(path)
    declared = [posixpath.normpath(artifact.source) for artifact in artifacts]
    for artifact, path in zip(artifacts, declared, strict=True):
        for entry in await _listed(sandbox, [path], 0.0):
            if is_below(entry["path"], path) and not _is_excluded(entry["path"], path, artifact.exclude):
                entries[entry["path"]] = entry
    kept = [entry for path, entry in entries.items() if not any(is_below(path, place) for place in _NEVER)]
    if len(kept) > _MOST_FILES:
        raise OSError(f"the agent left {len(kept)} files, and at most {_MOST_FILES} are carried to its judge")
    left_out = sorted(path for path in left_out if path not in entries)
    return Carried(kept, await _contents(sandbox, kept), declared, places, left_out)


async def remove_planted(sandbox: Sandbox, places: Places, brought: Mapping[str, bytes]) -> None:
    """Remove what is not carried from HOME, in a judge's box that got all of it. What the task brought comes back."""
    entries = await _listed(sandbox, [HOME], 0.0)
    planted = [entry["path"] for entry in entries if not places.is_carried(entry["path"], entry["kind"])]
    if planted:
        await _work(sandbox, "remove", {}, planted)
        kept = {path: data for path, data in brought.items() if f"{HOME}/app/{path}" in planted}
        await write_tree(sandbox, kept, "app")


def _is_excluded(path: str, root: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names a file, or a folder on the way to it, as tar's `--exclude` does."""
    parts = path.removeprefix(root).strip("/").split("/")
    names = [*parts, *("/".join(parts[: count + 1]) for count in range(len(parts)))]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


async def _listed(sandbox: Sandbox, roots: list[str], since: float) -> list[Entry]:
    request = {"roots": roots, "since": since, "skip": ["/proc", "/sys", "/dev"], "layered": since > 0}
    lines = await _work(sandbox, "list", request, as_lines=True)
    return [entry for entry in lines if entry["path"].startswith("/") and ".." not in entry["path"].split("/")]


async def _contents(sandbox: Sandbox, entries: list[Entry]) -> dict[str, bytes]:
    """The contents of files, fetched in parts."""
    files = [entry for entry in entries if entry["kind"] == "file"]
    most = sandbox.spec.limits.disk_mb << 20
    if (total := sum(entry["size"] for entry in files)) > most:
        raise OSError(f"the agent left {total >> 20} MB, and at most {most >> 20} MB are carried to its judge")
    contents: dict[str, bytes] = {}
    while files:
        piece = [files.pop()]
        while files and sum(entry["size"] for entry in piece) + files[-1]["size"] < _PIECE:
            piece.append(files.pop())
        paths = [entry["path"] for entry in piece]
        limit = sum(entry["size"] + 8 for entry in piece) + 1
        data, place = await _bytes(sandbox, "fetch", {}, json.dumps(paths).encode(), limit), 0
        for entry in piece:
            end = place + 8 + int.from_bytes(data[place : place + 8], "big")
            contents[entry["path"]] = data[place + 8 : end]
            entry["size"], place = end - place - 8, end
    return contents


async def _work(sandbox: Sandbox, operation: str, request: Entry, stdin: Any = b"", *, as_lines: bool = False) -> Any:
    """One operation on files, whose answer is JSON."""
    data = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
    answer = await _bytes(sandbox, operation, request, data, _LIST_BYTES)
    read: Callable[[bytes], Any] = json.loads
    return [read(line) for line in answer.splitlines()] if as_lines else read(answer) if answer else None


async def _bytes(sandbox: Sandbox, operation: str, request: Entry, stdin: bytes, limit: int) -> bytes:
    ended = await sandbox.work_on_files(operation, request, stdin, limit)
    if ended.ok and not ended.output_cut:
        return ended.stdout
    why = f"{ended.last_line or ended.why}" if not ended.output_cut else "there are too many files"
    verb = "read" if operation in ("list", "fetch") else "laid out for its judge"
    raise OSError(f"what the agent left cannot be {verb}: {why}")
