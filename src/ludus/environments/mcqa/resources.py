"""A question with lettered options; the model reasons freely and chooses one letter.

The grading mode says where in the text to look for the letter. A row with a prompt template may hold patterns for the
letter, which are tried first.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import ludus
from ludus import Failure, Resources, ResourcesConfig, Response, Verdict
from ludus.environments.mcqa.grading import MODES, choices_of, cut_from_word, templated_choice
from ludus.graders.patterns import PatternError, Patterns

RowMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
Mode = RowMode | Literal["lenient_answer_colon_md"]


class MultipleChoice(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        options: list[dict[str, str | None]] = []
        expected_answer: str = ""
        grading_mode: RowMode = "strict_single_letter_boxed"
        template_metadata: dict[str, Any] | None = None

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: Grade every row in this mode, and ignore the mode of the row.
        grading_mode: Mode | None = None

    config: Config
    shared: Patterns

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Patterns]:
        async with Patterns() as patterns:
            yield patterns

    async def verify(self, task: Task, response: Response) -> Verdict:
        choices = choices_of(task.options)
        expected = task.expected_answer.strip().upper()
        answer = await self._answer(task, response.output_text, choices)
        trusted = not choices and _is_letter(expected) and bool(_patterns(task))  # nothing but the pattern to go by
        solvable = expected in choices or trusted or self.config.compat
        return Verdict(
            float(answer == expected and solvable),
            expected_answer=expected,
            extracted_answer=answer,
            mask=None if solvable else "the expected answer is not one of the options",
        )

    async def _answer(self, task: Task, text: str, choices: dict[str, str]) -> str | None:
        if not text.strip():
            return None
        if task.template_metadata:
            answer = await self._by_template(task, text, choices)
            if answer is not None:
                return answer
        mode = MODES[self.config.grading_mode or task.grading_mode]
        return mode(text, choices, self.config.compat)

    async def _by_template(self, task: Task, text: str, choices: dict[str, str]) -> str | None:
        """The choice of the first of the row's patterns that gives one: its last match, or the group in that match."""
        for pattern in _patterns(task):
            try:
                spans = await self.shared.last_match(pattern, text, re.IGNORECASE)
            except PatternError:
                continue
            if spans is None:
                continue
            if len(spans) > 2:
                raise Failure(
                    "bad_row", f"output_regex {pattern!r:.80} has more than one group: which one is the answer?"
                )
            if cut_from_word(text, spans) and not self.config.compat:
                continue
            start, end = spans[-1]
            answer = templated_choice(text[max(start, 0) : max(end, 0)], choices)
            if answer is not None:
                return answer
        return None


def _patterns(task: MultipleChoice.Task) -> list[str]:
    """The patterns of a row's template."""
    patterns = (task.template_metadata or {}).get("output_regex")
    every = patterns if isinstance(patterns, list) else [patterns]
    return [pattern for pattern in every if pattern and isinstance(pattern, str)]


def _is_letter(answer: str) -> bool:
    return len(answer) == 1 and answer.isalpha()
