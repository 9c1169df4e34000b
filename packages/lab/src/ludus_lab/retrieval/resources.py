"""Questions about a library of documents: the answer must be right, and its citations must hold.

A citation holds if its words stand in the document that it names, and the model has read that document. One citation
must show the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

import ludus
from ludus import Failure, Resources, ResourcesConfig, Response, Verdict, tool
from ludus_lab.needs import require
from ludus_lab.retrieval.corpus import FOLDER, one_line
from ludus_lab.retrieval.ranking import Library, Ranking, open_library

#: Characters of one page of a document.
PAGE = 6_000

#: The answer and the citations stand in the last characters of the text.
LAST = 10_000
MOST_CITATIONS = 3
SHORTEST_QUOTE, LONGEST_QUOTE = 12, 600

_ANSWER = re.compile(r"<answer>([^<]{0,200})</answer>")
_CITATION = re.compile(r'<cite document="([\w.-]{1,80})">(.{0,1000}?)</cite>', re.DOTALL)


class Retrieval(Resources):
    """Search and reading, and the names of the documents that this rollout has read."""

    class Task(ludus.Task):
        kind: Literal["code", "release", "gap"] = "gap"
        expected_answer: str
        #: texts that one citation must have
        shows: list[str] = Field(min_length=1)
        #: the document that the question was made from, the digest of its text, and its package
        document: str
        digest: str
        package: str = ""

    class Config(ResourcesConfig):
        """Settings of the search."""

        #: By words, by embeddings (needs wordllama), or both.
        ranking: Ranking = "bm25"

        #: Passages that a search returns.
        results: PositiveInt = 5

        #: The folder with the pages.
        folder: Path = FOLDER

    config: Config
    shared: Library

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Library]:
        if config.folder == FOLDER:
            require(__package__, str(FOLDER))
        yield await asyncio.to_thread(open_library, config.folder, config.ranking)

    async def open(self, task: Task) -> None:
        document = self.shared.documents.get(task.document)
        if document is None or document.digest != task.digest:
            problem = "is not installed" if document is None else "has another text here"
            where = f"{task.document} of {task.package or 'an unknown package'}, which the row was made from,"
            raise Failure("bad_row", f"{where} {problem}. Make rows for this machine: --dataset questions")
        self.documents_read: set[str] = set()

    @tool
    def search(self, query: str) -> list[dict[str, Any]]:
        """Find passages. Returns for each the document, the page that it is on, and its text."""
        passages = self.shared.search(query, self.config.results)
        self.documents_read.update(passage.document for passage in passages)
        return [
            {"document": passage.document, "page": self._page_of(passage), "text": passage.text} for passage in passages
        ]

    @tool(name="open")
    async def open_document(self, document: str, page: int = 1) -> str:
        """Read a page of a document; pages count from 1."""
        text = self._text(document)
        pages = -(-len(text) // PAGE)
        if not 1 <= page <= pages:
            raise ValueError(f"{document} has the pages 1 to {pages}")  # the model reads this
        self.documents_read.add(document)
        title = self.shared.documents[document].title
        return f"{title} ({document}, page {page} of {pages})\n\n{text[(page - 1) * PAGE : page * PAGE]}"

    async def verify(self, task: Task, response: Response) -> Verdict:
        text = response.output_text[-LAST:]
        answers, citations = _ANSWER.findall(text), _CITATION.findall(text)
        right = bool(answers) and plain(answers[-1]) == plain(task.expected_answer)
        problem = self._problem(task, citations)
        parts = {"answer": float(right), "citations": float(problem is None)}
        return Verdict(float(right and problem is None), components=parts, kind=task.kind, problem=problem)

    def _problem(self, task: Task, citations: list[tuple[str, str]]) -> str | None:
        """What is wrong with the citations; None if they hold and show the answer."""
        if not 1 <= len(citations) <= MOST_CITATIONS:
            return f"{len(citations)} citations, not 1 to {MOST_CITATIONS}"
        for document, quoted in citations:
            quote = one_line(quoted)
            if not SHORTEST_QUOTE <= len(quote) <= LONGEST_QUOTE:
                return f"a quotation has {SHORTEST_QUOTE} to {LONGEST_QUOTE} characters"
            if document not in self.documents_read:
                return f"{document} was not read"
            if quote not in one_line(self.shared.documents[document].text):
                return f"these words do not stand in {document}"
        shows = [one_line(text) for text in task.shows]
        if not any(all(text in one_line(quoted) for text in shows) for _, quoted in citations):
            return "no citation shows the answer"
        return None

    def _text(self, name: str) -> str:
        if name not in self.shared.documents:
            raise ValueError(f"there is no document {name!r:.100}")  # the model reads this
        return self.shared.documents[name].text

    def _page_of(self, passage: Any) -> int:
        return self.shared.documents[passage.document].text.find(passage.text) // PAGE + 1


def plain(answer: str) -> str:
    """The answer without quotation marks, brackets of calls and commas between digits, in lower case."""
    bare = one_line(answer).strip(" .`'\"").removesuffix("()").casefold()
    return re.sub(r"(?<=\d),(?=\d)", "", bare)
