"""An open question. A judge decides whether the model's answer means the same as the expected answer.

The judge sees the part of the last message that a pattern finds, or the whole message. Rows made from a prompt template
bring their pattern. A second question can confirm an equal verdict with the answers swapped, or check a different
verdict again with the whole message.
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
from ludus import Resources, Response, Verdict
from ludus.environments.equivalence_llm_judge.prompt import TEMPLATE
from ludus.errors import cannot_read
from ludus.graders.judge import Evaluation, Judge, JudgeConfig, Rubric, judge_usage, open_judge, require_judge
from ludus.graders.patterns import PatternError, Patterns
from ludus.response import Item, is_message


@dataclass
class Shared:
    """What all rollouts share."""

    judge: Judge | None
    rubric: Rubric
    patterns: Patterns


class Equivalence(Resources):
    """No tools and no state: only the last message is judged."""

    class Task(ludus.Task):
        expected_answer: str | None = None
        metadata: dict[str, Any] | None = None
        template_metadata: dict[str, Any] | None = None

        @property
        def key(self) -> str:
            """The expected answer; older rows keep it in `metadata`."""
            return str(self.expected_answer or (self.metadata or {}).get("expected_answer") or "")

        @property
        def pattern(self) -> str | None:
            """The row's regular expression for the place where its prompt asks for the answer."""
            regex = (self.template_metadata or {}).get("output_regex")
            return regex if isinstance(regex, str) and regex else None

    class Config(JudgeConfig):
        """Settings of the verifier."""

        judge_equal_label: str = "[[A=B]]"
        judge_not_equal_label: str = "[[A!=B]]"
        judge_system_message: str | None = None

        #: Your own prompt, as a text or as a file. `Rubric` lists the fields that it may use.
        judge_prompt_template: str | None = None
        judge_prompt_template_fpath: Path | None = None

        #: Patterns whose last match replaces the whole text as the question, or as the answer.
        question_extract_regex: str | None = None
        response_extract_regex: str | None = None

        #: Whether the row's pattern takes precedence over `response_extract_regex`.
        use_per_record_regex: bool = True

        #: If the row has a pattern and its expected answer is longer than this, show the whole message.
        extraction_length_threshold: NonNegativeInt | None = None

        #: If the judge finds the answers equal, ask again with the two swapped.
        check_twice_swap: bool = False
        reward_if_swap_fails: float = 0.0

        #: If the judge finds the text that a row's pattern extracted different, ask again with the whole message.
        check_full_generation_on_fail: bool = False
        reward_if_full_generation_succeeds: float = 0.0

        #: With `compat`, the judge sees this in place of an empty message.
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
        question = await self._extract(self.config.question_extract_regex, self._question(task))
        answer = await self._extract(self._pattern(task), whole)
        reward, records = await self._judged(task, question, answer or self.config.msg_extraction_failure, whole)
        return Verdict(reward, expected_answer=task.key, judge_evaluations=records, judge_usage=judge_usage(records))

    async def _judged(self, task: Task, question: str, answer: str, whole: str) -> tuple[float, list[dict[str, Any]]]:
        config, whole_shown = self.config, self._too_long(task)

        async def ask(text: str, **how: Any) -> Evaluation:
            judge = require_judge(self.shared.judge)
            return await judge.compare(self.shared.rubric, question, task.key, text, **how)

        first = await ask(answer)
        if first.equal and config.check_twice_swap and not whole_shown:
            second = await ask(answer, swapped=True)
            return (1.0 if second.equal else config.reward_if_swap_fails), first.records + second.records
        if first.equal or whole_shown or not (config.check_full_generation_on_fail and task.pattern):
            return float(first.equal), first.records
        second = await ask(whole or config.msg_extraction_failure, again=True)
        return (config.reward_if_full_generation_succeeds if second.equal else 0.0), first.records + second.records

    def _too_long(self, task: Task) -> bool:
        """Whether the row's pattern is ignored because the expected answer is above `extraction_length_threshold`."""
        limit = self.config.extraction_length_threshold
        by_row = self.config.use_per_record_regex and task.pattern is not None
        return by_row and limit is not None and len(task.key) > limit

    def _pattern(self, task: Task) -> str | None:
        if self._too_long(task):
            return None
        own = task.pattern if self.config.use_per_record_regex else None
        return own or self.config.response_extract_regex

    def _question(self, task: Task) -> str:
        """The last user message. The reference finds no question if the input is a single text."""
        if self.config.compat and isinstance(task.responses_create_params["input"], str):
            return ""
        return next((_text(item) for item in reversed(task.input) if item.get("role") == "user"), "")

    async def _extract(self, pattern: str | None, text: str) -> str:
        """The last match (its first non-empty group, or all of it); the whole text if nothing matches."""
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
        raise cannot_read(f"the judge's prompt {path}", error) from error


def _last_message(response: Response) -> str:
    """The text of the last message, one line for each part."""
    last = next((item for item in reversed(response.output) if is_message(item)), None)
    return _text(last) if last is not None else ""


def _text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content.strip()
    parts = (part.get("text") for part in content or () if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str)).strip()
