"""Search services, played by a local server: what they are asked, and how their answers are handled."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from aiohttp import web

import ludus
from ludus import Outcome, ScriptedModel, UserError
from ludus.environments import google_search
from ludus.environments.google_search.test_browser import HTML, PROSE, serving
from ludus.testing import replay

NAME = "google_search"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "A: x\nB: y"},
    "expected_answer": "B",
    "task_difficulty_qwen3_32b_avg_8": 0.5,
}
KEY, ENGINE = "AIza-secret/key+1", "cx-secret-7"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GOOGLE_API_KEY": KEY, "GOOGLE_CX": ENGINE, "TAVILY_API_KEY": "tvly-one, tvly-two"}.items():
        monkeypatch.setenv(name, value)


async def outputs(provider: str, url: str, *calls: tuple[str, dict[str, Any]], **settings: Any) -> Any:
    """What the model sees of some calls with the service at `url`, or the failure of the first call."""
    compat = settings.pop("compat", False)
    config = {"provider": provider, "endpoint": url, "allow_private_addresses": True, "use_judge": False}
    config |= {"search_retries": {"busy": 1, "server": 1, "dropped": 0, "first_pause": 0.0}, **settings}
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    replies = await replay(NAME, {"kind": "tool", "row": ROW, "calls": written, "config": config}, compat=compat)
    return [json.loads(reply) for reply in replies] if isinstance(replies, list) else replies


async def test_google_searches_and_pages_are_fetched_without_leaking_keys(keys: None) -> None:
    asked: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/page":
            return web.Response(text=HTML, content_type="text/html")
        asked.append(dict(request.query))
        items = [{"title": "Harbour", "link": str(request.url.with_path("/page")), "snippet": "s", "pagemap": {}}]
        return web.json_response({"queries": {"request": [{"cx": ENGINE, "key": KEY}]}, "items": items})

    async with serving(handler) as url:
        calls = [("search", {"query": " a  harbour & more "}), ("browse", {"url": f"{url}/page"})]
        output, page = await outputs("google", f"{url}/v1", *calls, results=3)
        (raw,) = await outputs("google", f"{url}/v1", calls[0], compat=True)
    assert asked[0] == {"key": KEY, "cx": ENGINE, "num": "3", "q": "a harbour & more"}
    (item,) = json.loads(output["search_results"])["items"]
    assert (item["title"], item["displayLink"], item["snippet"]) == ("Harbour", "127.0.0.1", "s")
    assert "pagemap" not in item
    assert page == {"page_content": PROSE.strip()}
    assert json.loads(raw["search_results"])["items"][0]["pagemap"] == {}
    assert KEY not in str(raw)
    assert ENGINE not in str(raw)


@pytest.mark.parametrize(
    ("status", "kind", "times"), [(403, "http_403", 1), (429, "http_429", 2), (500, "http_500", 2)]
)
async def test_a_service_error_is_a_failure_that_does_not_show_the_key(
    keys: None, status: int, kind: str, times: int
) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.query_string)
        return web.Response(status=status, text=f"no: {KEY} {request.query_string} {'-' * 270}{KEY}")

    async with serving(handler) as url:
        failure = await outputs("google", url, ("search", {"query": "x"}))
        assert (failure.kind, failure.stage) == (kind, "tool")
        assert len(asked) == times
        (told,) = await outputs("google", url, ("search", {"query": "x"}), compat=True)
    assert told["search_results"].startswith(f"Error: Unexpected error - Google answered {status}: no: ***")
    for text in (failure.cause, told["search_results"]):
        assert not any(part in text for part in (KEY, "AIza", ENGINE))


async def test_a_503_is_retried_and_a_malformed_answer_is_not(keys: None) -> None:
    replies = [web.Response(status=503), web.json_response({"items": []})]
    replies += [web.Response(text="<html>"), web.json_response({"items": 5}), web.json_response([])]
    rest = iter(replies)

    async def handler(request: web.Request) -> web.Response:
        return next(rest)

    async with serving(handler) as url:
        (output,) = await outputs("google", url, ("search", {"query": "x"}))
        assert json.loads(output["search_results"]) == {"items": []}
        for _ in range(3):
            assert (await outputs("google", url, ("search", {"query": "x"}))).kind == "bad_response"
    failure = await outputs("google", url, ("search", {"query": "x"}))
    assert failure.kind == "refused"


async def test_a_service_that_hangs_is_a_timeout(keys: None) -> None:
    asked_in_vain = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await asked_in_vain.wait()
        return web.Response()

    async with serving(handler) as url:
        failure = await outputs("google", url, ("search", {"query": "x"}), search_timeout_seconds=0.1)
        asked_in_vain.set()
    assert (failure.kind, failure.cause) == ("timeout", "Google gave no answer in 0.1 s")


async def test_json_api_settings_describe_any_json_service(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((dict(request.query), request.headers.get("X-Token"), request.headers.get("Authorization")))
        entries = [{"name": "One", "href": "https://one.example/", "text": "first"}, {"name": "no address"}, 5]
        return web.json_response({"web": {"results": entries}})

    form = {"query": "text", "parameters": {"format": "json"}, "key_header": "X-Token", "results": "web.results"}
    form |= {"title": "name", "url": "href", "snippet": "text"}
    async with serving(handler) as url:
        (output,) = await outputs("json", url, ("search", {"query": "x"}), json_api=form)
        monkeypatch.setenv("SEARCH_API_KEY", "abc-123-def")
        await outputs("json", url, ("search", {"query": "x"}), json_api=form)
        await outputs("json", url, ("search", {"query": "x"}), json_api={"results": "web.results"})
        failure = await outputs("json", url, ("search", {"query": "x"}))
    assert [hit["link"] for hit in json.loads(output["search_results"])["items"]] == ["https://one.example/"]
    assert seen[0] == ({"format": "json", "text": "x"}, None, None)
    assert seen[1][1:] == ("abc-123-def", None)
    assert seen[2] == ({"q": "x"}, None, "Bearer abc-123-def")
    assert failure.kind == "bad_response"


async def test_tavily_searches_and_reads_and_uses_its_keys_in_turn(keys: None) -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append((request.path, request.headers["Authorization"], body))
        if request.path == "/extract":
            if "bad" in body["urls"][0]:
                return web.Response(status=400)
            return web.json_response({"results": [{"raw_content": "one two\nthree harbour"}]})
        if "answer" in body["query"]:
            return web.json_response({"answer": "Harbour.", "results": []})
        content = "line\n" * 500 + "x" * 100
        return web.json_response({"results": [{"title": "T", "url": "https://a.example/p", "content": content}]})

    page = {"url": "https://a.example/p"}
    async with serving(handler) as url:
        output, answer, line, words, bad, private = await outputs(
            "tavily",
            url,
            ("web_search", {"query": "harbour"}),
            ("web_search", {"query": "answer"}),
            ("find_in_page", {**page, "query": "harbour"}),
            ("scroll_page", {**page, "start_index": 1, "n": 2}),
            ("browse", {"url": "https://bad.example/"}),
            ("browse", {"url": "http://127.0.0.1/"}),
            excluded_domains=["b.example"],
        )
    assert output["results_string"].startswith("[1] T (a.example)\nhttps://a.example/p\nline\nline")
    assert len(output["results_string"]) < 2_100
    assert answer == {"results_string": "Harbour."}
    assert "L1: three harbour" in line["results_string"]
    assert words == {"results_string": "https://a.example/p, words 1 to 3 of 4\ntwo three", "total_words": 4}
    assert bad == {"page_content": "No HTML found: the page could not be opened"}
    assert private["page_content"].startswith("No HTML found")
    assert [path for path, _, _ in seen] == ["/search", "/search", "/extract", "/extract"]
    assert [key for _, key, _ in seen[:3]] == ["Bearer tvly-one", "Bearer tvly-two", "Bearer tvly-one"]
    body = {"query": "harbour", "max_results": 10, "search_depth": "advanced", "exclude_domains": ["b.example"]}
    assert seen[0][2] == body


@pytest.mark.parametrize(
    ("provider", "says"),
    [("google", "GOOGLE_API_KEY"), ("tavily", "TAVILY_API_KEY"), ("json", "resources.endpoint=URL")],
)
def test_a_missing_key_is_a_user_error_before_the_model_is_asked(
    provider: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_CX", "TAVILY_API_KEY"):
        monkeypatch.setenv(name, "")
    asked: list[Any] = []
    with pytest.raises(UserError, match=says):
        ludus.collect(NAME, model=ScriptedModel(asked.append), input=[ROW], settings={"resources.provider": provider})
    assert not asked


def test_the_web_needs_an_extra_and_the_local_index_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ludus.environments.google_search.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(google_search, "services", raising=False)  # `from google_search import services` takes it
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    settings = {"resources.provider": "json", "resources.endpoint": "http://127.0.0.1:1"}
    with pytest.raises(UserError, match=r"^aiohttp is not installed. Install it with: .*\[search\]'$"):
        ludus.collect("google_search", model=ScriptedModel(["A"]), limit=1, settings=settings)
    assert ludus.collect("google_search", model=ScriptedModel(["A"]), limit=1).metrics["counts"]["completed"] == 1


def test_an_unreachable_service_fails_the_run_only_if_the_model_searches(keys: None) -> None:
    settings: dict[str, Any] = {"resources.provider": "google", "resources.endpoint": "http://127.0.0.1:1/"}
    settings |= {"resources.search_retries": {"dropped": 0}}
    turns = [{"call": "search", "arguments": {"query": "x"}}, r"\boxed{B}"]
    rows = [{**ROW, "responses_create_params": {"input": f"{number}"}} for number in range(2)]
    with pytest.raises(UserError, match="Google cannot be reached"):
        ludus.collect(NAME, model=ScriptedModel(turns), input=rows, settings=settings)
    honest = [r"\boxed{B}"]
    rollout = ludus.collect(NAME, model=ScriptedModel(honest), input=rows[:1], settings=settings).rollouts[0]
    assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, 1.0)
