"""An open prompt without a right answer. Several answers are collected, and a reward model compares them two by two.

Each comparison gives both answers a score. The reward of an answer is the mean of its scores. Rewards can be compared
only between answers to the same prompt. Short or plain answers may earn a little more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, PositiveInt

import ludus
from ludus import Failure, Request, Resources, Response, Verdict
from ludus.dialects.usage import add_usage
from ludus.environments.genrm_compare.aggregation import (
    Pair,
    Strategy,
    mean_scores,
    pairs,
    relative,
    shortest_bonus,
    style_density,
)
from ludus.environments.genrm_compare.prompt import PRINCIPLE, Form, ask, guard, history
from ludus.environments.genrm_compare.replies import Scores, read_scores
from ludus.graders.judge import Judge, JudgeModelConfig, open_judge, require_judge
from ludus.response import is_message, texts_of

ALONE = "it is the only answer to its task: there is nothing to compare it with"
UNREAD = "none of the reward model's replies about it could be read"


@dataclass(frozen=True)
class Answer:
    """The compared part of a response: its last text, and the length of its reasoning."""

    text: str
    reasoning_length: int

    @classmethod
    def of(cls, response: Response) -> Answer:
        texts = (texts_of(item) for item in reversed(response.output) if is_message(item))
        return cls(next((text for text in texts if text.strip()), ""), len(response.reasoning))


@dataclass(frozen=True)
class Compared:
    """The result of one comparison. If no reply could be read, `scores` holds the defaults."""

    pair: Pair
    scores: Scores
    read: bool
    calls: int
    usage: dict[str, Any]
    reply: str

    def to_row(self, place: int) -> dict[str, Any]:
        """The record of the comparison. The reply is kept once, with the answer that was shown first."""
        first, second, judge = self.pair
        names = {"response_i": first, "response_j": second, "judge_idx": judge}
        scores = {"score_1": self.scores.first, "score_2": self.scores.second, "ranking": self.scores.ranking}
        return {**names, **scores, **({"reply": self.reply} if place == first else {})}


class Comparison(Resources):
    """No tools and no state: all answers to a prompt are judged together."""

    class Task(ludus.Task):
        principle: str | None = None

    class Config(JudgeModelConfig):
        """Settings of the verifier."""

        #: The form of the request to the reward model: see `prompt.py`.
        judge_format: Form = "prompt"

        #: Compare each answer with the next in a ring, or each with each.
        comparison_strategy: Strategy = "circular"

        #: How often each comparison is made.
        num_judges_per_comparison: PositiveInt = 1

        #: With 0 or 1 nothing is compared, and every answer gets `default_score`.
        num_rollouts_per_prompt: NonNegativeInt | None = None

        #: Send the reward model a principle to judge by: the row's, or else the default.
        use_principle: bool = False
        default_principle: str = PRINCIPLE

        #: Used for values that a reply leaves out, and for a reply that cannot be read.
        default_score: FiniteFloat = 3.0
        default_ranking: FiniteFloat = 3.5

        #: How often an unreadable reply is retried, and after how many seconds.
        genrm_parse_retries: NonNegativeInt = 3
        genrm_parse_retry_sleep_s: NonNegativeFloat = 0.2

        aggregator_method: Literal["simple_tiebreaker"] = "simple_tiebreaker"

        #: A bonus for the shortest reasoning, or the shortest answer, if its score is among the best.
        reasoning_bonus: FiniteFloat = 0.0
        answer_bonus: FiniteFloat = 0.0
        top_percentile: Annotated[float, Field(ge=0, le=1)] = 0.2

        #: How much short and long reasoning, short and long answers, plain and formatted answers differ in reward.
        group_reasoning_length_penalty_coeff: FiniteFloat = 0.0
        group_answer_length_penalty_coeff: FiniteFloat = 0.0
        group_style_penalty_coeff: FiniteFloat = 0.0

        @property
        def defaults(self) -> Scores:
            """The scores of a comparison without a readable reply."""
            return Scores(self.default_score, self.default_score, self.default_ranking)

    config: Config
    shared: Judge | None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Judge | None]:
        async with open_judge(config) as judge:
            yield judge

    async def open(self, task: Task) -> None:
        if not self._compares_nothing:
            require_judge(self.shared)

    async def verify_group(self, task: Task, responses: list[Response]) -> list[float | Verdict]:
        config = self.config
        if len(responses) < 2 or self._compares_nothing:
            mask = None if config.compat else ALONE
            return [Verdict(config.default_score, mask=mask) for _ in responses]
        answers = [Answer.of(response) for response in responses]
        compared = await self._compare_all(task, answers)
        return self._verdicts(answers, compared)

    @property
    def _compares_nothing(self) -> bool:
        wanted = self.config.num_rollouts_per_prompt
        return wanted is not None and wanted < 2

    async def _compare_all(self, task: Task, answers: list[Answer]) -> list[Compared]:
        """Run all comparisons concurrently; the judge limits how many requests are in flight."""
        config, judge = self.config, require_judge(self.shared)
        texts = [answer.text if config.compat else guard(answer.text) for answer in answers]
        conversation = history(task.input, compat=config.compat)
        principle = (task.principle or config.default_principle) if config.use_principle else None

        def request(pair: Pair) -> Request:
            first, second = texts[pair.first], texts[pair.second]
            return ask(config.judge_format, conversation, first, second, principle, judge.params)

        schedule = pairs(len(answers), config.comparison_strategy, config.num_judges_per_comparison)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._compare(judge, pair, request(pair))) for pair in schedule]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _compare(self, judge: Judge, pair: Pair, request: Request) -> Compared:
        """Ask until a reply can be read. An unreachable judge fails the group, except in compat."""
        config, reply, usage = self.config, Response.of(), dict[str, Any]()
        for attempt in range(1, config.genrm_parse_retries + 2):
            if attempt > 1:
                await asyncio.sleep(config.genrm_parse_retry_sleep_s)
            try:
                reply = await judge.reply(request)
            except Failure:
                if not config.compat:
                    raise
                return Compared(pair, config.defaults, False, attempt, usage, "")
            add_usage(usage, reply.usage)
            scores = read_scores(reply.output_text, config.defaults, compat=config.compat)
            if scores is not None:
                return Compared(pair, scores, True, attempt, usage, reply.output_text)
        if reply.incomplete_reason and not config.compat:
            raise Failure("judge", f"its reply was cut off before a verdict: {reply.incomplete_reason}")
        return Compared(pair, config.defaults, False, config.genrm_parse_retries + 1, usage, reply.output_text)

    def _verdicts(self, answers: list[Answer], compared: list[Compared]) -> list[float | Verdict]:
        """The verdict on each answer, with the comparisons that the answer took part in."""
        config, count = self.config, len(answers)
        base = mean_scores(
            count, [(comparison.pair, comparison.scores) for comparison in compared], config.default_score
        )
        parts = {"comparisons": base, **self._adjustments(answers, base)}
        scores = [score for comparison in compared for score in comparison.scores[:2]]
        group: dict[str, Any] = {
            "mean_individual_score": fmean(scores),
            "std_individual_score": pstdev(scores),
            "tiebreak_usage_rate": fmean(
                comparison.scores.first == comparison.scores.second for comparison in compared
            ),
        }
        own: list[list[Compared]] = [[] for _ in answers]
        for comparison in compared:
            own[comparison.pair.first].append(comparison)
            own[comparison.pair.second].append(comparison)
        return [
            Verdict(
                sum(part[place] for part in parts.values()),
                components={name: part[place] for name, part in parts.items()},
                mask=None if config.compat or any(comparison.read for comparison in own[place]) else UNREAD,
                comparison_results=[comparison.to_row(place) for comparison in own[place]],
                unread_comparisons=sum(not comparison.read for comparison in own[place]),
                **_spent([comparison for comparison in own[place] if comparison.pair.first == place]),
                **group,
            )
            for place in range(count)
        ]

    def _adjustments(self, answers: list[Answer], base: list[float]) -> dict[str, list[float]]:
        """The enabled adjustments for length and style, by name.

        An answer without a text earns nothing for being short or plain.
        """
        config = self.config
        lengths, thoughts = [len(answer.text) for answer in answers], [answer.reasoning_length for answer in answers]
        written = [config.compat or bool(answer.text) for answer in answers]
        styles = [style_density(answer.text) for answer in answers]
        adjustments = {
            "reasoning_bonus": shortest_bonus(base, thoughts, config.reasoning_bonus, config.top_percentile),
            "answer_bonus": shortest_bonus(base, lengths, config.answer_bonus, config.top_percentile),
            "reasoning_length": relative([*map(float, thoughts)], config.group_reasoning_length_penalty_coeff, written),
            "answer_length": relative([*map(float, lengths)], config.group_answer_length_penalty_coeff, written),
            "style": relative(styles, config.group_style_penalty_coeff, written),
        }
        return {name: part for name, part in adjustments.items() if any(part)}


def _spent(compared: list[Compared]) -> dict[str, Any]:
    """Calls and tokens of comparisons. Each comparison is counted once, with the answer that was shown first."""
    usage: dict[str, Any] = {}
    for comparison in compared:
        add_usage(usage, comparison.usage)
    return {"judge_calls": sum(comparison.calls for comparison in compared), "judge_usage": usage}
