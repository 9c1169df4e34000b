"""An open question. The model answers in its own words, and a judge decides whether that means the expected answer.

What the judge sees of the answer is what a pattern finds in the last message, or all of it: rows that came with a
prompt template bring their pattern along. The judge may be asked a second time, with the answers exchanged where it
found them equal, or with the whole message where it found what the pattern had cut out different.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

import ludus
from ludus import Resources, Response, UserError, Verdict
from ludus.environments.equivalence_llm_judge.prompt import TEMPLATE
from ludus.graders.judge import Evaluation, Judge, JudgeConfig, Rubric, judge_usage, open_judge, require_judge
from ludus.graders.patterns import PatternError, Patterns
from ludus.response import Item, is_message


@dataclass
class Shared:
    """What all rollouts use."""

    judge: Judge | None
    rubric: Rubric
    patterns: Patterns


class Equivalence(Resources):
    """No tools and no state: the text is judged as it is."""

    class Task(ludus.Task):
        expected_answer: str | None = None
        metadata: dict[str, Any] | None = None
        template_metadata: dict[str, Any] | None = None

        @property
        def key(self) -> str:
            """The expected answer, which older rows keep in their metadata."""
            return str(self.expected_answer or (self.metadata or {}).get("expected_answer") or "")

        @property
        def pattern(self) -> str | None:
            """Where the prompt template of this row asks for the answer."""
            found = (self.template_metadata or {}).get("output_regex")
            return found if isinstance(found, str) and found else None

    class Config(JudgeConfig):
        """Settings of the verifier."""

        judge_equal_label: str = "[[A=B]]"
        judge_not_equal_label: str = "[[A!=B]]"
        judge_system_message: str | None = None

        #: A prompt of one's own, as a text or as a file. See `Rubric` for the fields that it may use.
        judge_prompt_template: str | None = None
        judge_prompt_template_fpath: Path | None = None

        #: Patterns whose last match is the question, or the answer, instead of the whole text.
        question_extract_regex: str | None = None
        response_extract_regex: str | None = None

        #: Whether a row's own pattern comes before `response_extract_regex`.
        use_per_record_regex: bool = True

        #: Show the whole message where the expected answer has more characters and the row has a pattern.
        extraction_length_threshold: NonNegativeInt | None = None

        #: Where the judge finds the answers equal, ask again with the two exchanged.
        check_twice_swap: bool = False
        reward_if_swap_fails: float = 0.0

        #: Where the judge finds what a row's pattern cut out different, ask again with the whole message.
        check_full_generation_on_fail: bool = False
        reward_if_full_generation_succeeds: float = 0.0

        #: What the judge is shown in place of an empty message, with `compat`.
        msg_extraction_failure: str = "[there is no answer]"

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        rubric = Rubric(
            _template(config),
            system=config.judge_system_message,
            equal=config.judge_equal_label,
            not_equal=config.judge_not_equal_label,
            guarded=not config.compat,
        )
        async with open_judge(config) as judge, Patterns() as patterns:
            yield Shared(judge, rubric, patterns)

    async def open(self, task: Task) -> None:
        require_judge(self.shared.judge)

    async def verify(self, task: Task, response: Response) -> Verdict:
        whole = _last_message(response)
        if not self.config.compat and not (whole and task.key):
            mask = None if task.key else "the row has no expected answer"
            return Verdict(0.0, expected_answer=task.key, judge_evaluations=[], mask=mask)
        question = await self._found(self.config.question_extract_regex, self._question(task))
        answer = await self._found(self._pattern(task), whole)
        reward, records = await self._judged(task, question, answer or self.config.msg_extraction_failure, whole)
        return Verdict(reward, expected_answer=task.key, judge_evaluations=records, judge_usage=judge_usage(records))

    async def _judged(self, task: Task, question: str, answer: str, whole: str) -> tuple[float, list[dict[str, Any]]]:
        config, skipped = self.config, self._too_long(task)

        async def ask(text: str, **how: Any) -> Evaluation:
            judge = require_judge(self.shared.judge)
            return await judge.compare(self.shared.rubric, question, task.key, text, **how)

        first = await ask(answer)
        if first.equal and config.check_twice_swap and not skipped:
            second = await ask(answer, swapped=True)
            return (1.0 if second.equal else config.reward_if_swap_fails), first.records + second.records
        if first.equal or skipped or not (config.check_full_generation_on_fail and task.pattern):
            return float(first.equal), first.records
        second = await ask(whole or config.msg_extraction_failure, again=True)
        return (config.reward_if_full_generation_succeeds if second.equal else 0.0), first.records + second.records

    def _too_long(self, task: Task) -> bool:
        """Whether the row's pattern is set aside because so long an answer is not cut out well."""
        limit = self.config.extraction_length_threshold
        by_row = self.config.use_per_record_regex and task.pattern is not None
        return by_row and limit is not None and len(task.key) > limit

    def _pattern(self, task: Task) -> str | None:
        if self._too_long(task):
            return None
        own = task.pattern if self.config.use_per_record_regex else None
        return own or self.config.response_extract_regex

    def _question(self, task: Task) -> str:
        """What the user asked last. The reference finds no question where the input is one text."""
        if self.config.compat and isinstance(task.responses_create_params["input"], str):
            return ""
        return next((_text(item) for item in reversed(task.input) if item.get("role") == "user"), "")

    async def _found(self, pattern: str | None, text: str) -> str:
        """The last match: its first group that holds anything, or all of it. The whole text where nothing matches."""
        if not pattern or not text:
            return text
        try:
            spans = await self.shared.patterns.last_match(pattern, text, re.MULTILINE | re.DOTALL)
        except PatternError:
            return text
        if spans is None:
            return text
        groups = (text[start:end].strip() for start, end in spans[1:] if start >= 0)
        return next((group for group in groups if group), text[slice(*spans[0])].strip())


def _template(config: Equivalence.Config) -> str:
    if config.judge_prompt_template is not None:
        return config.judge_prompt_template
    if (path := config.judge_prompt_template_fpath) is None:
        return TEMPLATE
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the judge's prompt {path}: {error.strerror}") from error


def _last_message(response: Response) -> str:
    """The text of the last message, its parts on lines of their own."""
    last = next((item for item in reversed(response.output) if is_message(item)), None)
    return _text(last) if last is not None else ""


def _text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content.strip()
    parts = (part.get("text") for part in content or () if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str)).strip()
