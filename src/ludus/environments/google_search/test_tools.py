"""The tools with the local corpus: what the model sees, and what it cannot open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ludus
from ludus import Request, ScriptedModel
from ludus.testing import replay

NAME = "google_search"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Which planet is largest?\nA: Mars\nB: Jupiter"},
    "expected_answer": "B",
    "task_difficulty_qwen3_32b_avg_8": 0.5,
}
OPEN: dict[str, Any] = {
    "responses_create_params": {"input": "Which planet is largest?"},
    "question": "Which planet is largest?",
    "ground_truth": "Jupiter",
}
PAGE = "https://almanac.example/jupiter"


async def outputs(*calls: tuple[str, dict[str, Any]], row: dict[str, Any] = ROW, **settings: Any) -> list[Any]:
    """What the model sees of some calls on one session."""
    compat = settings.pop("compat", False)
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    line = {"kind": "tool", "row": row, "calls": written, "config": {"use_judge": False, **settings}}
    replies = await replay(NAME, line, compat=compat)
    assert isinstance(replies, list), replies
    return [json.loads(reply) for reply in replies]


async def test_open_questions_offer_other_tools() -> None:
    def first(request: Request) -> str:
        return ",".join(tool["name"] for tool in request.params["tools"])

    for row, names in ((ROW, "search,browse"), (OPEN, "web_search,find_in_page,scroll_page")):
        settings = {"resources.use_judge": False}
        result = await ludus.collect_async(NAME, model=ScriptedModel(first), input=[row], settings=settings)
        rollout = result.rollouts[0]
        assert rollout.response is not None
        assert rollout.response.output_text == names


async def test_tools_for_open_questions_search_find_and_scroll() -> None:
    hits, line, words, rest = await outputs(
        ("web_search", {"query": "largest planet"}),
        ("find_in_page", {"url": PAGE, "query": "Galileo moons"}),
        ("scroll_page", {"url": PAGE, "start_index": 1, "n": 3}),
        ("scroll_page", {"url": PAGE, "start_index": -5, "n": 10**9}),
        row=OPEN,
    )
    assert hits["results_string"].startswith(f"[1] Jupiter (almanac.example)\n{PAGE}\n")
    assert "L2: Jupiter is the largest planet" in line["results_string"]
    assert words["results_string"].endswith("\nJupiter is the")
    assert words["total_words"] == rest["total_words"] > 50
    assert rest["results_string"].endswith("larger than the earth.")


async def test_tools_for_open_questions_word_errors_as_the_reference_does() -> None:
    said = await outputs(
        ("web_search", {}),
        ("web_search", {"query": "x" * 401}),
        ("find_in_page", {"query": "x"}),
        ("find_in_page", {"url": PAGE}),
        ("find_in_page", {"url": "https://nowhere.example", "query": "x"}),
        ("scroll_page", {"url": None}),
        row=OPEN,
    )
    texts = ["Query is none", "Query is too long", "URL is none", "Query is none", "No content found.", "URL is none"]
    assert [reply["results_string"] for reply in said] == texts


async def test_a_page_outside_the_corpus_is_not_found_and_nothing_is_fetched() -> None:
    urls = ["http://127.0.0.1/", "file:///etc/passwd", "' OR 1=1 --", "", "\x00", f"{PAGE}/", "javascript:1"]
    for reply in await outputs(*[("browse", {"url": url}) for url in urls]):
        assert reply == {"page_content": "No HTML found: there is no such page"}
    (plain,) = await outputs(("browse", {"url": urls[0]}), compat=True)
    assert plain == {"page_content": "No HTML found"}
    (anchored,) = await outputs(("browse", {"url": f" {PAGE}#moons"}))
    assert "Jupiter" in anchored["page_content"]


async def test_malformed_calls_return_an_error_to_the_model() -> None:
    empty, number, long, blank = await outputs(
        ("search", {}), ("browse", {"url": 5}), ("search", {"query": "x" * 2001}), ("search", {"query": " \n"})
    )
    assert empty["detail"][0] == {"type": "missing", "loc": ["body", "query"], "msg": "Field required", "input": {}}
    assert number["detail"][0]["loc"] == ["body", "url"]
    assert long["search_results"].startswith("Error: the query is longer")
    assert json.loads(blank["search_results"]) == {"items": []}


async def test_excluded_domains_are_neither_found_nor_opened(tmp_path: Path) -> None:
    notices = tmp_path / "domains.json"
    notices.write_text(json.dumps({"notices": [{"properties": [{"type": "domain", "value": "Example"}]}]}))
    for settings in ({"excluded_domains": ["almanac.example"]}, {"exclude_domains_file_path": str(notices)}):
        hits, page, line = await outputs(
            ("search", {"query": "Jupiter"}),
            ("browse", {"url": PAGE}),
            ("find_in_page", {"url": PAGE, "query": "x"}),
            **settings,
        )
        assert json.loads(hits["search_results"]) == {"items": []}
        assert page["page_content"] == "No HTML found: URL is in excluded domains"
        assert line["results_string"] == "URL is in excluded domains"


async def test_a_long_page_is_cut_after_10000_words_and_in_compat_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(" ".join(f"w{number}" for number in range(12_000)))
    (tmp_path / "solid.txt").write_text("x" * 200_000)
    url = "https://corpus.example/long.txt"
    (cut,) = await outputs(("browse", {"url": url}), corpus=str(tmp_path))
    words = cut["page_content"].split()
    assert (len(words), words[0], words[-1]) == (10_001, "long", "...")
    (solid,) = await outputs(("browse", {"url": url.replace("long", "solid")}), corpus=str(tmp_path))
    assert len(solid["page_content"]) < 100_010
    (ends,) = await outputs(("browse", {"url": url}), corpus=str(tmp_path), compat=True)
    assert len(ends["page_content"]) == 10_003
    assert ends["page_content"].endswith("w11999")
