r"""A question that needs research: the model searches, opens pages, and gives an answer.

There are two kinds of rows. One has lettered options, the tools `search` and `browse`, and an answer in `\boxed{}` that
must match exactly. The other is an open question with the tools `web_search`, `find_in_page` and `scroll_page`, and a
judge. The setting `provider` selects the search service; the default is a corpus in this folder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationInfo, field_validator, model_validator

import ludus
from ludus import Failure, Resources, Response, Verdict, tool
from ludus.environments.google_search.answers import (
    boxed_option,
    final_text,
    reference_answer,
    reference_option,
    stated_answer,
)
from ludus.environments.google_search.domains import EXCLUDED, in_domains
from ludus.environments.google_search.local import Local
from ludus.environments.google_search.prompt import rubric
from ludus.environments.google_search.provider import NoPage, Provider, Results, no_html
from ludus.environments.google_search.rendering import as_items, as_text, best_lines, both_ends, shortened, some_words
from ludus.environments.google_search.settings import SearchConfig
from ludus.errors import missing_extra
from ludus.graders.judge import Judge, judge_usage, open_judge, require_judge
from ludus.runtime.encoding import encode
from ludus.runtime.threads import in_thread

FOR_OPTIONS, FOR_OPEN_QUESTIONS = ("search", "browse"), ("web_search", "find_in_page", "scroll_page")
LONGEST_QUERY, LONGEST_WEB_QUERY = 2_000, 400
DIFFICULTY = "task_difficulty_qwen3_32b_avg_8"

#: The parameters of a Responses API request.
PARAMETERS = frozenset(
    """
    background conversation include input instructions max_output_tokens max_tool_calls metadata model
    parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning safety_identifier
    service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user
    """.split()
)


@dataclass
class Shared:
    """What all rollouts share."""

    provider: Provider
    judge: Judge | None
    excluded: frozenset[str]


class WebSearch(Resources):
    """The search tools of one rollout. Its only state is a cache of opened pages."""

    class Task(ludus.Task):
        """A question with options has `expected_answer`, an open one `question` and `ground_truth`."""

        expected_answer: str | None = None
        task_difficulty_qwen3_32b_avg_8: float | None = None
        question: str | None = None
        ground_truth: str | None = None

        @field_validator("responses_create_params")
        @classmethod
        def _has_known_parameters(cls, params: dict[str, Any]) -> dict[str, Any]:
            if unknown := sorted(params.keys() - PARAMETERS):
                raise ValueError(f"{unknown[0]} is not a Responses API parameter")
            return params

        @model_validator(mode="after")
        def _has_an_expected_answer(self, info: ValidationInfo) -> Self:
            if self.expected_answer is None:
                if self.question is None or self.ground_truth is None:
                    raise ValueError("a row needs an expected_answer, or a question and its ground_truth")
                return self
            unmeasured = self.task_difficulty_qwen3_32b_avg_8 is None
            if DIFFICULTY not in self.model_fields_set or (unmeasured and (info.context or {}).get("compat")):
                raise ValueError(f"a row with an expected_answer needs {DIFFICULTY}; write null if not measured")
            return self

    class Config(SearchConfig):
        """Settings of the tools and of the verifier."""

    config: Config
    shared: Shared
    judged_by_response = True  # rescoring must not search again

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        excluded = config.excluded()
        async with _provider_class(config.provider).open(config) as provider, open_judge(config) as judge:
            yield Shared(provider, judge, excluded)

    async def open(self, task: Task) -> None:
        self.pages: dict[str, str] = {}
        self.has_options = task.expected_answer is not None
        if not self.has_options and self.config.use_judge:
            require_judge(self.shared.judge)

    def tools(self) -> list[dict[str, Any]]:
        names = FOR_OPTIONS if self.has_options else FOR_OPEN_QUESTIONS
        return [self.toolbox[name].schema() for name in names]

    @tool
    async def search(self, query: str) -> dict[str, str]:
        """Search the web for a query and return up to 10 results.

        Args:
            query: What to search for.
        """
        if len(query) > LONGEST_QUERY:
            return {"search_results": f"Error: the query is longer than {LONGEST_QUERY} characters"}
        try:
            results = await self._search(query)
        except Failure as failure:
            if not self.config.compat:
                raise
            return {"search_results": f"Error: Unexpected error - {failure.cause}"}
        if self.config.compat and results.raw is not None:
            return {"search_results": results.raw}
        return {"search_results": encode(as_items(results)).decode()}

    @tool
    async def browse(self, url: str) -> dict[str, str]:
        """Return the text of a web page. A page of more than 10,000 words is cut off there.

        Args:
            url: The address of the page.
        """
        try:
            page = await self._page(url)
        except NoPage as error:
            return {"page_content": error.what if self.config.compat else str(error)}
        except Failure as failure:
            if not self.config.compat:
                raise
            return {"page_content": f"Error: Unexpected error = {failure.cause}"}
        cut = both_ends if self.config.compat else shortened
        return {"page_content": await in_thread(cut, page, self.config.page_words)}

    @tool
    async def web_search(self, query: str | None = None) -> dict[str, str]:
        """Search the web for a query and return up to 10 results, each with its address and a summary.

        Args:
            query: What to search for, in at most 400 characters.
        """
        if query is None:
            return {"results_string": "Query is none"}
        if len(query) > LONGEST_WEB_QUERY:
            return {"results_string": "Query is too long"}
        return {"results_string": as_text(await self._search(query))}

    @tool
    async def find_in_page(self, url: str | None = None, query: str | None = None) -> dict[str, str]:
        """Show the place of a web page that is about a query, with numbered lines.

        Args:
            url: The address of the page.
            query: What to look for in it.
        """
        if url is None or query is None:
            return {"results_string": "URL is none" if url is None else "Query is none"}
        try:
            page = await self._page(url)
        except NoPage as error:
            return {"results_string": self._no_content(error)}
        return {"results_string": await in_thread(best_lines, url, page, query)}

    @tool
    async def scroll_page(self, url: str | None = None, start_index: int = 0, n: int = 2000) -> dict[str, Any]:
        """Show some words of a web page.

        Args:
            url: The address of the page.
            start_index: The number of the first word.
            n: How many words to show.
        """
        if url is None:
            return {"results_string": "URL is none", "total_words": 0}
        try:
            page = await self._page(url)
        except NoPage as error:
            return {"results_string": self._no_content(error), "total_words": 0}
        shown, total = await in_thread(some_words, url, page, start_index, min(n, self.config.page_words))
        return {"results_string": shown, "total_words": total}

    async def verify(self, task: Task, response: Response) -> Verdict:
        calls = len(response.function_calls)
        if task.expected_answer is None:
            return await self._open_answer(task, response, calls)
        compat = self.config.compat
        option = reference_option(response) if compat else boxed_option(response)
        values: dict[str, Any] = {"expected_answer": task.expected_answer, "num_tool_calls": calls}
        values["parsed_option" if compat else "extracted_answer"] = option
        return Verdict(float(option == task.expected_answer), **values)

    async def _open_answer(self, task: Task, response: Response, calls: int) -> Verdict:
        compat, expected = self.config.compat, str(task.ground_truth)
        values: dict[str, Any] = {"expected_answer": expected, "num_tool_calls": calls}
        if not self.config.use_judge:
            answer = reference_answer(response) if compat else stated_answer(response)
            return Verdict(float(answer == expected), extracted_answer=answer, **values)
        text = response.output_text if compat else final_text(response).strip()
        if not text and not compat:
            return Verdict(0.0, judge_evaluations=[], **values)
        judge = require_judge(self.shared.judge)
        evaluation = await judge.compare(rubric(compat), str(task.question), expected, text)
        records = evaluation.records
        return Verdict(float(evaluation.equal), judge_evaluations=records, judge_usage=judge_usage(records), **values)

    async def _search(self, query: str) -> Results:
        """The provider's results without excluded domains. A blank query finds nothing."""
        asked = " ".join(query.split())
        results = await self.shared.provider.search(asked) if asked else Results([])
        hits = [hit for hit in results.hits if not in_domains(hit.url, self.shared.excluded)]
        return Results(hits, results.answer, results.raw)

    async def _page(self, url: str) -> str:
        """The text of a page, cached for the rollout."""
        if in_domains(url, self.shared.excluded):
            raise no_html(EXCLUDED)
        if url not in self.pages:
            self.pages[url] = await self.shared.provider.page(url)
        return self.pages[url]

    def _no_content(self, error: NoPage) -> str:
        return EXCLUDED if EXCLUDED in str(error) else "No content found."


def _provider_class(name: str) -> type[Provider]:
    """The provider with a name. Those on the web need the extra `search`, the local index does not."""
    if name == "local":
        return Local
    try:
        from ludus.environments.google_search import services
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "search") from error
    providers: dict[str, type[Provider]] = {
        "google": services.Google,
        "json": services.Json,
        "tavily": services.Tavily,
    }
    return providers[name]
