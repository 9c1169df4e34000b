"""Pages in a real browser: sessions at once, first results that are final, pictures, and text that stays text."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest
from lab import needs_installed
from ludus_lab.browser import qualify
from ludus_lab.browser.generate import row, stream
from ludus_lab.browser.pages import PAGES
from ludus_lab.browser.resources import ENDED
from ludus_lab.browser.solvers import SOLVERS
from ludus_lab.browser.tree import read_tree

import ludus
from ludus import Environment, Failure, ScriptedModel, UserError

pytestmark = needs_installed("ludus_lab.browser")
LOOK = {"call": "look"}


def collect(*rows: dict[str, Any], model: Any, concurrency: int = 4, **settings: Any) -> list[Any]:
    environment = Environment.load("browser").copy()
    environment.configure(settings)
    return ludus.collect(environment, model=ScriptedModel(model), input=list(rows), concurrency=concurrency).rollouts


def outputs(rollout: Any) -> list[Any]:
    return [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]


def solve(request: Any) -> Any:
    """The oracle of a page whose name stands in the prompt."""
    task = Environment.load("browser").task(row(request.input[1]["content"], 0))
    return qualify.oracle(task)(request)


def named(page: str, seed: int) -> dict[str, Any]:
    """A row whose prompt says the name of its page."""
    asked = row(page, seed)
    asked["responses_create_params"]["input"][1]["content"] = page
    return asked


def test_twenty_sessions_are_open_at_once_and_all_solve_their_pages():
    pages = ["click-test", "click-button", "enter-text", "click-option", "focus-text"] * 4
    waiting, everybody = set(), asyncio.Event()

    async def model(request):
        if request.turn == 1:  # its page is open
            waiting.add(request.session)
            if len(waiting) == len(pages):
                everybody.set()
            await everybody.wait()
        return solve(request)

    rollouts = collect(*(named(page, seed) for seed, page in enumerate(pages)), model=model, concurrency=20)
    assert [rollout.error for rollout in rollouts] == [None] * 20
    assert [rollout.reward for rollout in rollouts] == [1.0] * 20


def test_the_same_seed_shows_the_same_page_and_another_seed_another():
    rollouts = collect(*[row("click-button", seed) for seed in (1, 1, 2)], model=[LOOK, "."])
    first, again, other = (outputs(each)[0] for each in sorted(rollouts, key=lambda each: each.task.seed))
    assert first == again != other
    assert "button" in {node.role for node in read_tree(first)}


def test_the_first_result_of_a_page_is_final():
    def model(request):
        if request.turn < 2:
            return (
                [LOOK, {"call": "click", "arguments": {"ref": _wrong(request)}}][request.turn] if request.turn else LOOK
            )
        right = {"name": "click", "arguments": {"ref": _button(request, "ONE")}}
        return {"calls": [right, right]} if request.turn == 2 else "Done."

    (rollout,) = collect(row("click-test-2", 1), model=model)
    assert outputs(rollout)[1:] == [ENDED, ENDED, ENDED]
    assert (rollout.reward, rollout.verdict.values["page_reward"], rollout.verdict.values["actions"]) == (0.0, -1.0, 1)


def _button(request: Any, name: str) -> str:
    tree = next(item["output"] for item in request.input if item.get("type") == "function_call_output")
    return next(node.ref for node in read_tree(tree) if node.role == "button" and node.name == name)


def _wrong(request: Any) -> str:
    return _button(request, "TWO")


@pytest.mark.parametrize(
    "call",
    [
        {"call": "click", "arguments": {"ref": "e999999"}},
        {"call": "click", "arguments": {"ref": "css=button"}},
        {"call": "click", "arguments": {"ref": "e5\n>> css=*"}},
        {"call": "click_at", "arguments": {"x": 10**9, "y": -1}},
        {"call": "press", "arguments": {"key": "F12"}},
        {"call": "press", "arguments": {"key": "Control+V"}},
        {"call": "type", "arguments": {"ref": "e2", "text": "x" * 10_000}},
        {"call": "type", "arguments": {"ref": "e2", "text": "\U0001f600\u0000\u202e"}},
        {"call": "goto", "arguments": {"url": "http://127.0.0.1"}},
    ],
)
def test_a_call_that_cannot_be_done_is_answered_and_the_rollout_judged(call):
    (rollout,) = collect(row("enter-text", 1), model=[LOOK, call, "Done."])
    assert (rollout.error, rollout.reward) == (None, 0.0)
    assert isinstance(outputs(rollout)[1], str)


def test_script_in_a_field_does_not_run():
    for page in ("terminal", "enter-text", "search-engine"):

        def model(request, page=page):
            if request.turn == 0:
                return LOOK
            fields = [node for node in read_tree(outputs_of(request)[0]) if node.role == "textbox"]
            typed = {"call": "type", "arguments": {"ref": fields[-1].ref, "text": qualify.SCRIPT}}
            return [typed, {"call": "press", "arguments": {"key": "Enter"}}, LOOK, "Done."][request.turn - 1]

        (rollout,) = collect(row(page, 1), model=model)
        assert rollout.reward == 0.0, page
        assert rollout.verdict.values.get("page_reward", 0.0) <= 0, page


def outputs_of(request: Any) -> list[str]:
    return [item["output"] for item in request.input if item.get("type") == "function_call_output"]


async def test_a_page_runs_no_foreign_script_and_reaches_nothing_outside():
    from ludus_lab.browser.chromium import chromium

    asked = []

    async def answer(reader, writer):
        asked.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, chromium() as shared:
        page = await shared.visit("enter-text", 1)
        await page.evaluate(
            """url => {
                document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.forged = 1"><a id=link></a>');
                const script = document.createElement('script');
                script.textContent = 'window.forged = 2';
                document.body.append(script);
                document.getElementById('link').href = 'javascript:window.forged = 3';
                document.getElementById('link').click();
                window.reached = [];
                for (const target of [url, 'file:///etc/passwd'])
                    fetch(target).then(() => window.reached.push(target), () => {});
                document.body.insertAdjacentHTML('beforeend', `<img src="${url}"><iframe src="${url}"></iframe>`);
            }""",
            url,
        )
        await page.evaluate("url => { location.href = url }", url)
        await page.clock.run_for(1000)
        assert await page.evaluate("() => [window.forged ?? null, window.reached]") == [None, []]
        assert page.url.startswith("http://miniwob.invalid/")
    assert asked == []


async def test_a_dead_browser_is_a_failure_without_a_reward_and_is_started_again():
    environment = Environment.load("browser")
    async with environment.resources.share(environment.resources.Config()) as shared:
        task = environment.task(row("click-test", 1))
        first, second = environment.resources(shared=shared), environment.resources(shared=shared)
        for session in (first, second):
            await session.open(task)
        await first.look()
        await shared.stop()
        with pytest.raises(Failure, match="chromium failed") as failed:
            await first.look()
        assert failed.value.kind == "browser"
        assert "Click Me!" in await second.look()
        await first.close()
        await second.close()


def test_look_shows_a_picture_if_it_is_asked_for():
    settings = {"resources.pictures": True}
    (rollout,) = collect(
        row("click-color", 1), model=[LOOK, {"call": "click_at", "arguments": {"x": 1, "y": 1}}, "."], **settings
    )
    text, image = outputs(rollout)[0]
    assert "colored box" in text["text"]
    assert (image["type"], image["image_url"][:22]) == ("input_image", "data:image/png;base64,")
    assert isinstance(outputs(rollout)[1], str)


def test_an_unknown_page_is_named():
    with pytest.raises(ValueError, match="is not a page. Did you mean click-test"):
        Environment.load("browser").task(row("click-tests", 1))
    with pytest.raises(UserError, match="data.page 'click-tests' is not a page"):
        next(stream(0, page="click-tests"))


def test_rows_name_every_page_in_turn():
    rows = list(islice(stream(3), len(PAGES)))
    assert rows == list(islice(stream(3), len(PAGES)))
    assert [each["page"] for each in rows] == list(PAGES)
    assert len(PAGES) >= 100
    assert SOLVERS.keys() <= set(PAGES)
