"""A model that judges whether two answers mean the same.

Any error on the way to the judge is a `Failure` of kind `judge`, and the rollout gets no reward. A reply without a
verdict counts as the verdict that the answers differ.

The model that wrote the answer is rewarded for persuading the judge. So the prompt puts the answer between marks that
the model cannot guess, and breaks up labels and control tokens inside the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from ludus.dialects.usage import add_usage
from ludus.errors import Failure
from ludus.model import Model, Request
from ludus.models import open_model
from ludus.resources import ResourcesConfig
from ludus.response import Item, Response, is_message

_FIELD = re.compile(
    r"\{\{|\}\}|\{(question|expected_answer|generated_answer|equal_label|not_equal_label|mark)\}", re.ASCII
)
_CONTROL_TOKEN = re.compile(r"<(?=[|\uff5c])")

#: How a user names a judge, in a command and in a call.
NAME_A_JUDGE = '--set resources.judge=SPEC, or in Python with: settings={"resources.judge": SPEC}'


class JudgeModelConfig(ResourcesConfig):
    """Settings of an environment with a judge model."""

    #: The judge model, as on the command line: `URL#NAME`, `openai:NAME`, `local`, `scripted:FILE`.
    judge: str | None = None

    #: Settings of the judge model, such as `{retries: 8}`.
    judge_settings: dict[str, Any] = {}

    #: Parameters of each request besides the prompt, such as `{temperature: 0}`.
    judge_responses_create_params: dict[str, Any] = {}

    #: The most requests in flight; null for any number.
    judge_endpoint_max_concurrency: PositiveInt | None = 64

    #: The timeout of one request.
    judge_timeout_seconds: PositiveFloat = 120.0


class JudgeConfig(JudgeModelConfig):
    """Settings of an environment whose judge says whether two answers are equal."""

    #: The votes of one verdict: more than half must be for equal. Voting ends once the result is certain.
    judge_votes: PositiveInt = 1

    #: The most verdicts in the cache; 0 turns the cache off.
    judge_cache_size: NonNegativeInt = 4096


@dataclass(frozen=True)
class Rubric:
    """The judge's prompt, and how to read the judge's reply.

    The template may hold `{question}`, `{expected_answer}`, `{generated_answer}`, the two labels (`{equal_label}`,
    `{not_equal_label}`) and `{mark}`, a digest of the question and both answers. `{{` is a brace.
    """

    template: str
    system: str | None = None
    equal: str = "[[A=B]]"
    not_equal: str = "[[A!=B]]"
    guarded: bool = True

    def ask(self, question: str, expected: str, answer: str, *, swapped: bool = False) -> list[Item]:
        """The items of the prompt. `swapped` exchanges the places of the expected and the given answer."""
        if self.guarded:
            answer = self.guard(answer)
        first, second = (answer, expected) if swapped else (expected, answer)
        fields = {
            "question": question,
            "expected_answer": first,
            "generated_answer": second,
            "equal_label": self.equal,
            "not_equal_label": self.not_equal,
            "mark": blake2b("\0".join((question, first, second)).encode("utf-8", "replace"), digest_size=6).hexdigest(),
        }
        text = _FIELD.sub(lambda field: fields[field[1]] if field[1] else field[0][0], self.template)
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": text}]

    def guard(self, answer: str) -> str:
        """The answer with labels and control tokens broken up, so that a judge that quotes it gives no verdict."""
        for label in sorted((self.equal, self.not_equal), key=len, reverse=True):
            if len(label) > 1:
                answer = answer.replace(label, f"{label[0]} {label[1:]}")
        return _CONTROL_TOKEN.sub("< ", answer)

    def label(self, response: Response) -> str | None:
        """The verdict of a reply: the first label in the last part of the last item, if that item is a message."""
        last = response.output[-1] if response.output else None
        content = last.get("content") if last is not None and is_message(last) else None
        if isinstance(content, list) and content and isinstance(content[-1], dict):
            content = content[-1].get("text")
        if not isinstance(content, str):
            return None
        places = [(content.find(label), -len(label), label) for label in (self.equal, self.not_equal)]
        return min((place for place in places if place[0] >= 0), default=(0, 0, None))[2]


@dataclass(frozen=True)
class Evaluation:
    """A judge's verdict on two answers, with each request and its reply."""

    equal: bool
    records: list[dict[str, Any]]


class Judge:
    """A judge model, with a limit of concurrent requests, a timeout for each request, and a cache of verdicts.

    judge = Judge(model)
    evaluation = await judge.compare(rubric, "Which planet is largest?", "Jupiter", "It is Jupiter.")
    """

    def __init__(
        self,
        model: Model,
        *,
        params: dict[str, Any] | None = None,
        concurrency: int | None = 64,
        timeout: float = 120.0,
        votes: int = 1,
        cache_size: int = 4096,
    ) -> None:
        self.model = model
        self.params = params or {}
        self.timeout = timeout
        self.votes = votes
        self.usage: dict[str, Any] = {}
        self._slots = asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        self._cache: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        self._cache_size = cache_size

    async def compare(
        self, rubric: Rubric, question: str, expected: str, answer: str, *, swapped: bool = False, again: bool = False
    ) -> Evaluation:
        """Ask whether two answers mean the same. `again` has cache entries of its own, for a second opinion."""
        prompt = rubric.ask(question, expected, answer, swapped=swapped)
        key = (rubric, prompt[-1]["content"], swapped, again)
        records: list[dict[str, Any]] = []
        equal = 0
        while 2 * equal <= self.votes and 2 * (len(records) - equal) < self.votes:
            record = await self._record(rubric, prompt, (*key, len(records)))
            equal += record["verdict_label"] == rubric.equal
            records.append(record)
        return Evaluation(2 * equal > self.votes, records)

    async def both_ways(self, rubric: Rubric, question: str, expected: str, answer: str) -> Evaluation:
        """Ask, and if the answers are equal, ask again with the answers exchanged. Both verdicts must be equal."""
        first = await self.compare(rubric, question, expected, answer)
        if not first.equal:
            return first
        second = await self.compare(rubric, question, expected, answer, swapped=True)
        return Evaluation(second.equal, first.records + second.records)

    async def _record(self, rubric: Rubric, prompt: list[Item], key: Any) -> dict[str, Any]:
        if key in self._cache:
            self._cache.move_to_end(key)
            return {**self._cache[key], "cached": True}
        request = {**self.params, "input": prompt}
        response = await self.reply(Request(prompt, params=self.params))
        label = rubric.label(response)
        if label is None and response.incomplete_reason and rubric.guarded:
            raise Failure("judge", f"the judge's reply was cut off before a verdict: {response.incomplete_reason}")
        add_usage(self.usage, response.usage)
        record = {"responses_create_params": request, "response": response.data, "verdict_label": label}
        self._cache[key] = record
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return record

    async def reply(self, request: Request) -> Response:
        """The model's response to any request. Raises a `Failure` of kind `judge`."""
        async with self._slots:
            try:
                async with asyncio.timeout(self.timeout):
                    response = await self.model.respond(request)
                response = Response.checked(response.data)
            except TimeoutError as error:
                raise Failure("judge", f"the judge timed out after {self.timeout:g} s") from error
            except Failure as error:
                raise Failure("judge", f"{error.kind}: {error.cause}") from error
            except Exception as error:
                raise Failure("judge", f"{type(error).__name__}: {error}") from error
        if response.status == "failed":
            raise Failure("judge", f"the judge's response failed: {str(response.data.get('error'))[:300]}")
        if response.aborted is not None:
            raise Failure("judge", f"the judge's reply ended early, with the reason {response.aborted!r:.80}")
        return response


@asynccontextmanager
async def open_judge(config: JudgeModelConfig) -> AsyncIterator[Judge | None]:
    """The judge that the settings name, None without one. The judge's model starts and stops with the context."""
    if config.judge is None:
        yield None
        return
    votes: dict[str, int] = {}
    if isinstance(config, JudgeConfig):
        votes = {"votes": config.judge_votes, "cache_size": config.judge_cache_size}
    async with open_model(config.judge, config.judge_settings) as model:
        yield Judge(
            model,
            params=config.judge_responses_create_params,
            concurrency=config.judge_endpoint_max_concurrency,
            timeout=config.judge_timeout_seconds,
            **votes,
        )


def require_judge(judge: Judge | None) -> Judge:
    """The judge. Raises a `Failure` of kind `no_judge` without one."""
    if judge is None:
        raise Failure("no_judge", f"these rows need a judge. Name a model with: {NAME_A_JUDGE}")
    return judge


def judge_usage(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The token usage of evaluations, without the cached ones."""
    total: dict[str, Any] = {}
    for record in records:
        if not record.get("cached"):
            add_usage(total, record["response"].get("usage") or {})
    return total
