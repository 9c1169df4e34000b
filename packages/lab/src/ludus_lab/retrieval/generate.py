"""Questions that code makes from the documentation, with answers that can be compared exactly.

Every row pins what it was made from: the version of the package, and the digest of the document.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_lab.needs import require
from ludus_lab.retrieval.corpus import FRONT_PAGE, PACKAGE, Document, read_corpus

SYSTEM = (
    "You answer questions about the documentation of SQLite. Use the tools `search` and `open` to find the passage. "
    "End with the answer between tags, and with one to three citations: the name of a document that you have read, and "
    "words of it, exactly as they stand there, that show the answer.\n"
    "<answer>42</answer>\n"
    '<cite document="limits.html">the words of the document</cite>'
)

_CODE = re.compile(r"^\((\d+)\) (SQLITE_\w+)$", re.MULTILINE)
_RELEASE = re.compile(r"^(\d{4}-\d\d-\d\d) \((\d+\.\d+\.\d+(?:\.\d+)?)\)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z])")
_TARGET = re.compile(r"(?<![\w.,-])(?:\d{2,6}|[A-Z][A-Z0-9_]{6,}|sqlite3_[a-z0-9_]{4,}(?:\(\))?)(?![\w-]|[.,]\w)")
_VAGUE = re.compile(
    r"^(?:This|It|These|Those|That|They|He|Such|In this|In that|For example|See|Note|But|And|So|Or|Then)\b"
)

Question = tuple[str, str, list[str]]  # the question, the answer, and texts that a citation must have


def questions(seed: int, *, kind: str = "") -> Iterator[dict[str, Any]]:
    """Rows of one kind (`code`, `release` or `gap`), by default of all kinds in turn while each lasts."""
    if kind and kind not in KINDS:
        raise UserError(f"data.kind {kind!r:.40} is not a kind of question", did_you_mean(kind, KINDS))
    require(__package__, str(FRONT_PAGE))
    documents, version = read_corpus(), _version()
    generator = random.Random(seed)
    rows = [_rows(name, documents, version, generator) for name in ([kind] if kind else KINDS)]
    while rows:
        for source in list(rows):
            row = next(source, None)
            if row is None:
                rows.remove(source)
            else:
                yield row


def _rows(
    kind: str, documents: dict[str, Document], version: str, generator: random.Random
) -> Iterator[dict[str, Any]]:
    made = list(KINDS[kind](documents))
    generator.shuffle(made)
    for document, (question, answer, shows) in made:
        prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        yield {
            "responses_create_params": {"input": prompt},
            "kind": kind,
            "expected_answer": answer,
            "shows": shows,
            "document": document.name,
            "digest": document.digest,
            "package": f"{PACKAGE} {version}",
        }


def _codes(documents: dict[str, Document]) -> Iterator[tuple[Document, Question]]:
    document = documents["rescode.html"]
    for number, name in _CODE.findall(document.text):
        yield document, (f"Which number is the result code {name}?", number, [name, f"({number})"])


def _releases(documents: dict[str, Document]) -> Iterator[tuple[Document, Question]]:
    document = documents["changes.html"]
    for date, version in _RELEASE.findall(document.text):
        question = f"On which day was version {version} of SQLite released? Write the day as 2001-12-31."
        yield document, (question, date, [date, version])


def _gaps(documents: dict[str, Document]) -> Iterator[tuple[Document, Question]]:
    """Sentences that occur once in the whole documentation, with their only number or name left out."""
    sentences = [
        (document, sentence)
        for document in documents.values()
        if document.name != "changes.html"
        for line in document.text.splitlines()
        for sentence in _SENTENCE.split(line)
    ]
    gapped = Counter(_TARGET.sub("____", sentence) for _, sentence in sentences)
    for document, sentence in sentences:
        targets = _TARGET.findall(sentence)
        if not 70 <= len(sentence) <= 240 or len(targets) != 1 or sentence[-1] != "." or _VAGUE.match(sentence):
            continue
        gap = _TARGET.sub("____", sentence)
        if gapped[gap] == 1 and sentence.count(targets[0]) == 1:
            question = f"Which number or name stands in the gap of this sentence from the documentation?\n\n{gap}"
            yield document, (question, targets[0], [_around(sentence, targets[0])])


def _around(sentence: str, target: str) -> str:
    """The target with the two words before it and behind it."""
    before, _, after = sentence.partition(target)
    return f"{' '.join(before.split(' ')[-3:])}{target}{' '.join(after.split(' ')[:3])}".strip()


def _version() -> str:
    """The installed version of the package; `unknown` where dpkg does not know it."""
    command = ["dpkg-query", "-W", "-f=${Version}", PACKAGE]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout or "unknown"
    except (OSError, subprocess.SubprocessError):
        return "unknown"


KINDS: dict[str, Callable[[dict[str, Document]], Iterator[tuple[Document, Question]]]] = {
    "code": _codes,
    "release": _releases,
    "gap": _gaps,
}
