"""The documentation of SQLite as Debian's package `sqlite3-doc` installs it: pages of HTML as plain text.

The text of a page follows from its file alone, so its digest tells whether two machines read the same document.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from ludus.errors import UserError

#: Where the package puts its pages.
FOLDER = Path("/usr/share/doc/sqlite3")
#: A page that sqlite3-doc brings: the folder is there with sqlite3 alone.
FRONT_PAGE = FOLDER / "index.html"
PACKAGE = "sqlite3-doc"

#: Lists of links, diagrams drawn as text, and copies of other pages.
_LEFT_OUT = re.compile(
    r"doc_.*crossref|requirements|syntaxdiagrams?|keyword_index|capi3ref|fileformat2|sitemap|search|docs?|index|toc\d*|"
    r"oldnews|copyright-release.*|hp1|books|mingw.*|releaselog|different|crew|vdbe|news|chronology"
)
_UNSEEN = re.compile(r"<(script|style|svg|form)\b.*?</\1>|<!--.*?-->|<div class=.?menu.*?</div>", re.DOTALL)
_HEADER = re.compile(r"^.*?</script>\s*</div>", re.DOTALL)
_BLOCK = re.compile(
    r"</?(?:p|h\d|li|tr|td|th|dt|dd|div|pre|table|ul|ol|blockquote|center|title|br|hr)\b[^>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<[^>]*>")

#: Characters of a passage, at most; a longer paragraph is cut between sentences.
LONGEST_PASSAGE = 900
SHORTEST_PASSAGE = 40


@dataclass(frozen=True)
class Passage:
    """A part of a document, as search finds it: its number counts from 1."""

    document: str
    number: int
    text: str


@dataclass(frozen=True)
class Document:
    """A page: its name, its title, its text with a line for each paragraph, and the digest of the text."""

    name: str
    title: str
    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.text.encode()).hexdigest()[:32])

    def passages(self) -> list[Passage]:
        """Paragraphs, joined while they are short."""
        parts: list[str] = []
        for line in self.text.splitlines():
            if parts and len(parts[-1]) + len(line) < LONGEST_PASSAGE:
                parts[-1] = f"{parts[-1]}\n{line}"
            else:
                parts += [line[at : at + LONGEST_PASSAGE] for at in range(0, len(line), LONGEST_PASSAGE)]
        return [
            Passage(self.name, number, text) for number, text in enumerate(parts, 1) if len(text) > SHORTEST_PASSAGE
        ]


def read_corpus(folder: Path = FOLDER) -> dict[str, Document]:
    """All documents of a folder by name, in alphabetical order."""
    paths = sorted(folder.glob("*.html")) if folder.is_dir() else []
    documents = {path.name: _document(path) for path in paths if not _LEFT_OUT.fullmatch(path.stem)}
    if not documents:
        raise UserError(f"{folder} has no documentation", f"Install it with: apt-get install {PACKAGE}")
    return documents


def one_line(text: str) -> str:
    """The text with single spaces, as quotations are compared."""
    return " ".join(text.split())


def _document(path: Path) -> Document:
    source = path.read_text(encoding="utf-8", errors="replace")
    title = re.search(r"<title>(.*?)</title>", source, re.DOTALL)
    body = _UNSEEN.sub(" ", _HEADER.sub("", source, count=1))
    plain = html.unescape(_TAG.sub("", _BLOCK.sub("\n", body)))
    lines = filter(None, map(one_line, re.split(r"\n\s*\n|\n(?=\s*\n)", plain)))
    return Document(path.name, html.unescape(title[1]).strip() if title else path.stem, "\n".join(lines))
