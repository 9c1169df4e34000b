"""The model searches a small archive, answers a question, and cites the articles that its answer rests on.

The reward needs the right answer, exactly the right citations, and that each cited article was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.graders.answers import marked_answers, normalised

_CITATION = re.compile(r"\[([a-z-]+)\]")


class Archive(Resources):
    """An archive that all rollouts share, and the names of the articles that this rollout has read."""

    class Task(ludus.Task):
        expected_answer: str
        sources: list[str]

    shared: dict[str, str]  # the articles by name

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[dict[str, str]]:
        """Read the articles once in each process, and not once in each rollout."""
        yield json.loads((Path(__file__).parent / "data/articles.json").read_text())

    async def open(self, task: Task) -> None:
        self.articles_read: set[str] = set()

    @tool
    async def search(self, words: str) -> list[str]:
        """The names of the three articles that have the most of these words."""
        wanted = set(words.lower().split())
        return sorted(self.shared, key=lambda name: -len(wanted & set(self.shared[name].lower().split())))[:3]

    @tool
    async def read(self, name: str) -> str:
        """The text of an article."""
        if name not in self.shared:
            raise ValueError(f"there is no article {name}")  # the model reads this
        self.articles_read.add(name)
        return self.shared[name]

    async def verify(self, task: Task, response: Response) -> Verdict:
        answer = next(marked_answers(response.output_text), "")  # the last line "Answer: ..."
        cited = set(_CITATION.findall(answer))
        right = normalised(_CITATION.sub("", answer)).rstrip(". ") == normalised(task.expected_answer)
        supported = cited == set(task.sources) <= self.articles_read
        return Verdict(float(right and supported), right=right, supported=supported)
