"""The documents that the `local` provider searches: the embedded corpus, or a folder or file of the user.

A folder is read recursively: text, Markdown, HTML and JSONL files. A line of JSONL holds `text`, and may hold `title`
and `url`. A document without a URL gets one made from its path in the folder, on a domain that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from ludus.errors import UserError, cannot_read
from ludus.runtime.encoding import json_error

EMBEDDED = Path(__file__).with_name("data") / "corpus.jsonl"
BASE = "https://corpus.example/"
_PLAIN, _MARKDOWN, _HTML, _LINES = {".txt", ".text"}, {".md", ".markdown"}, {".html", ".htm", ".xhtml"}, {".jsonl"}
_KNOWN = _PLAIN | _MARKDOWN | _HTML | _LINES


class Document(NamedTuple):
    """One page of a corpus."""

    url: str
    title: str
    text: str


def read_corpus(path: Path | None = None) -> Iterator[Document]:
    """Every document of a corpus in a fixed order; the embedded corpus if no path is given."""
    root = EMBEDDED if path is None else path
    if root.is_file() and root.suffix.lower() not in _KNOWN:
        raise UserError(f"corpus {root} has an unknown file type", f"Known: {', '.join(sorted(_KNOWN))}")
    if not root.exists():
        raise UserError(f"corpus {root} does not exist", "Set a file or folder: --set resources.corpus=PATH")
    for file in [root] if root.is_file() else _files(root):
        name = file.name if file == root else file.relative_to(root).as_posix()
        yield from _documents(file, BASE + quote(name))


def _files(folder: Path) -> list[Path]:
    """All files of a known type, without hidden files and hidden folders."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _KNOWN and file.is_file())
    return sorted(file for file in files if not any(part[0] == "." for part in file.relative_to(folder).parts))


def _documents(file: Path, url: str) -> Iterator[Document]:
    kind = file.suffix.lower()
    try:
        if kind in _LINES:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.isspace():
                        yield _document(line, f"{file}:{number}", f"{url}/{number}")
            return
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise cannot_read(file, error) from error
    title = file.stem
    if kind in _HTML:
        page = _Page()
        page.feed(text)
        page.close()
        title, text = page.title.strip() or title, page.text
    elif kind in _MARKDOWN:
        heading = next((line for line in text.splitlines() if line.startswith("#")), "")
        title = heading.lstrip("#").strip() or title
    yield Document(url, title, text)


def _document(line: bytes, where: str, url: str) -> Document:
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: {json_error(error)}", "Each line must hold one JSON object") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise UserError(f"{where}: text must be a string", 'Write it as {"url": ..., "title": ..., "text": ...}')
    text = row["text"]
    title = row.get("title") or " ".join(text.split()[:10])
    return Document(str(row.get("url") or url), str(title), text)


class _Page(HTMLParser):
    """The title and the readable text of an HTML file, one line per block. Only for the user's own files."""

    _SKIPPED = frozenset({"script", "style", "template", "noscript", "svg"})
    _INLINE = frozenset("a abbr b bdi cite code em i kbd mark q s small span strong sub sup time u var wbr".split())

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self._parts: list[str] = []
        self._skipping = 0
        self._in_title = False

    @property
    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).splitlines())
        return "\n".join(line for line in lines if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipping += tag in self._SKIPPED
        self._in_title = tag == "title"
        self._parts.append("" if tag in self._INLINE else "\n")

    def handle_endtag(self, tag: str) -> None:
        self._skipping = max(0, self._skipping - (tag in self._SKIPPED))
        self._in_title = False
        self._parts.append("" if tag in self._INLINE else "\n")

    def handle_data(self, data: str) -> None:
        if self._in_title and not self._skipping:
            self.title += data
        elif not self._skipping:
            self._parts.append(" ".join(data.split("\n")))
