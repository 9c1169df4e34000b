"""The viewer in a real browser, page by page. Screenshots lie in the folder that LUDUS_SCREENSHOTS names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import viewed_runs
import waiting
from browsing import AXE, CHROMIUM, COLOURS, Tab
from slow_transformers import SlowTransformers
from viewing import until_indexed, viewing

from ludus.view.exporting import export_page
from ludus.view.serving import Viewer

if CHROMIUM is None:
    pytest.skip("needs a browser: apt-get install chromium", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")

pytestmark = pytest.mark.slow

STYLES = "(elements) => elements.map((element) => element.getAttribute('style'))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("runs")
    viewed_runs.write_run(found / "first", tasks=12)
    viewed_runs.write_run(found / "second", tasks=12, seed=2)
    viewed_runs.write_judged_run(found / "judged")
    viewed_runs.write_run_with_threads(found / "harness")
    viewed_runs.write_spoken_run(found / "spoken")
    viewed_runs.write_hostile_run(found / "hostile")
    return found


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with viewing(folder, play=["example_session_state_mgmt"]) as found:
        until_indexed(found)
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def tab(browser: Any, viewer: Viewer) -> Iterator[Tab]:
    found = Tab(browser, viewer)
    yield found
    found.context.close()


def test_runs_are_listed_filtered_and_compared(tab: Tab):
    tab.open("/", "table.runs tbody tr:nth-child(3)")
    page = tab.page
    tab.keep("runs")
    page.fill("#search", "second")
    page.wait_for_selector("table.runs tbody tr:nth-child(2)", state="detached")
    assert "second" in tab.text("table.runs tbody")
    page.fill("#search", "")
    for name in ("first", "second"):
        page.check(f"tr:has(a[href='#/run/{tab.keys[name]}']) input")
    page.click("text=Compare the two")
    assert "B minus A" in tab.text(".verdict-line")
    tab.keep("compare")


def test_a_run_shows_its_figures_and_leads_to_the_rollouts(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}", ".plot circle")
    page = tab.page
    for title in ("Rewards", "Pass rate per task", "Where the time went", "Failures", "Tool calls", "Stop reasons"):
        assert page.locator("h2", has_text=title).first.is_visible()
    assert page.locator(".heat li").count() == 12
    for title in ("Where the time went", "Stop reasons", "Model calls in a rollout"):  # a bar is as long as its share
        bars = page.locator(f"section[aria-label='{title}'] .bar-track > i")
        widths = [float(style.split("width:")[1].split("%")[0]) for style in bars.evaluate_all(STYLES)]
        assert sum(widths) == pytest.approx(100, abs=1)
    tab.keep("run")
    page.click(".bars a:has-text('http_429')")
    assert "the endpoint answered 429" in tab.text("table.rollouts")
    page.go_back()
    page.click(".heat li:nth-child(2) a")
    page.wait_for_selector("table.rollouts tbody tr:nth-child(4)")
    assert page.locator("table.rollouts tbody tr").count() == 4


def test_a_search_marks_words_and_the_keyboard_walks_through_the_matches(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}?tab=rollouts", "table.rollouts")
    page = tab.page
    page.keyboard.press("/")
    page.keyboard.type("refunded reward:1")
    page.wait_for_selector("table.rollouts[data-shows='refunded reward:1']")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_selector("tr.current")
    page.keyboard.press("Enter")
    page.wait_for_selector(".conversation mark")
    tab.keep("rollout")
    first = tab.text("h1.id")
    page.keyboard.press("3")  # the tab stays for the next rollout
    page.wait_for_selector("#tab-task[aria-selected=true]")
    page.keyboard.press("j")
    page.wait_for_function("(old) => document.querySelector('h1.id')?.innerText !== old", arg=first)
    assert page.locator("#tab-task[aria-selected=true]").count() == 1
    page.keyboard.press("k")
    page.wait_for_function("(old) => document.querySelector('h1.id')?.innerText === old", arg=first)
    page.keyboard.press("Escape")
    page.wait_for_selector("table.rollouts")
    assert page.input_value("#search") == "refunded reward:1"


def test_the_steps_of_a_rollout_stand_on_a_line_of_time_and_lead_to_their_items(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}/rollout/1", ".lanes i")
    page = tab.page
    assert page.locator(".lanes i").count() == 7
    assert "7 steps in" in tab.text(".steps-line h2")
    titles = [page.locator(".lanes i").nth(n).get_attribute("title") or "" for n in range(7)]
    assert [title.partition(":")[0] for title in titles[1:4]] == ["model call 1", "tool search_orders", "model call 2"]
    page.set_viewport_size({"width": 1280, "height": 300})
    page.locator(".lanes .s-model").nth(2).click()
    page.wait_for_function("""() => {
        const place = document.querySelector("#item-5").getBoundingClientRect();
        return place.top >= 0 && place.bottom <= innerHeight;
    }""")
    page.set_viewport_size({"width": 1280, "height": 860})


def test_a_rollout_is_replayed_step_by_step(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}/rollout/1", ".item.assistant")
    page = tab.page
    page.keyboard.press("r")
    page.wait_for_selector(".item.assistant", state="detached")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".item.assistant")
    page.keyboard.press("r")


def test_the_next_rollout_brings_its_own_conversation(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}/rollout/4", "h1.id:has-text('refund-000-3')")
    page = tab.page
    page.keyboard.press("j")
    page.wait_for_selector(".item.user:has-text('A-1001')")
    page.wait_for_selector(".item.assistant:has-text('A-1001'), .item.assistant:has-text('I am sorry')")


def test_an_answer_that_is_given_up_half_way_is_not_shown(tab: Tab):
    page, first = tab.page, tab.keys["first"]
    tab.open(f"/run/{first}/rollout/1", ".item.assistant")
    network = tab.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": 8000, "uploadThroughput": -1}
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", slow)  # the head of an answer arrives long before its body
    begun = list[str]()
    page.on("response", lambda reply: begun.append(reply.url))
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    page.keyboard.press("j")
    tab.go(f"/run/{tab.keys['hostile']}/rollout/3")
    waiting.until(lambda: page.evaluate("1") and any(f"run={tab.keys['hostile']}" in url for url in begun))
    tab.go(f"/run/{first}/rollout/2")
    page.wait_for_selector("h1.id:has-text('refund-000-1')")
    network.send("Network.emulateNetworkConditions", {**slow, "downloadThroughput": -1})
    network.detach()
    assert tab.complaints == []


def test_typing_goes_on_while_a_search_is_shown(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}?tab=rollouts", "table.rollouts")
    page = tab.page
    page.focus("#search")
    page.keyboard.type("refunded")
    # The next letter comes between the new address and the next paint.
    page.evaluate("""() => new Promise((done) => addEventListener("hashchange", () => {
        const field = document.getElementById("search");
        field.value += "x";
        field.dispatchEvent(new InputEvent("input", { bubbles: true }));
        done();
    }, { once: true }))""")
    page.wait_for_selector("text=No rollout matches")
    assert page.input_value("#search") == "refundedx"


def test_the_trainers_eye_colours_tokens(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}/rollout/1?tab=tokens", ".ids .token.trained")
    page = tab.page
    trained = page.locator(".ids .token.trained").count()
    page.click(".chips button:has-text('logprob')")
    page.wait_for_selector(".ids .lp0, .ids .lp1, .ids .lp2")
    assert page.locator(".ids [class*=' lp']").count() == trained
    assert page.locator(".trainer .warning", has_text="A new sequence starts at call 3").count() == 1
    page.click(".chips button:has-text('entropy')")
    page.wait_for_selector(".ids .lp1, .ids .lp2, .ids .lp3")
    assert page.locator(".ids [class*=' lp']").count() < trained  # only one call has it
    tab.keep("tokens")


def test_a_note_is_saved_and_a_tag_becomes_a_filter(tab: Tab):
    tab.open(f"/run/{tab.keys['second']}/rollout/2", "#note")
    page = tab.page
    page.fill("#note", "Look at the policy")
    page.fill("#tags", "policy")
    page.click("aside button:has-text('Save')")
    page.wait_for_selector("text=Saved beside the run")
    tab.open(f"/run/{tab.keys['second']}?tab=rollouts", "table.rollouts")
    page.click(".chips button:has-text('tag:policy')")
    page.wait_for_selector("table.rollouts .tag")
    page.wait_for_selector("table.rollouts tbody tr:nth-child(2)", state="detached")


def test_an_environment_is_played_from_the_page(tab: Tab):
    tab.open("/play", ".play-start")
    page = tab.page
    assert page.locator("select >> nth=0").input_value() == "example_session_state_mgmt"  # chosen from the start
    page.fill("input[type=number]", "")
    page.click("button:has-text('Start')")
    page.wait_for_selector("text=A row is a whole number from 1, not nothing.")
    page.fill("input[type=number]", "2")
    page.click("button:has-text('Start')")
    page.wait_for_selector("#line:enabled")
    assert "increment_counter(count)" in tab.text("aside[aria-label=Tools]")
    page.fill("#line", "increment_countr count=3")
    page.keyboard.press("Enter")
    page.wait_for_selector(".play .quiet:has-text('increment_counter')")  # a mistyped name is asked about
    page.wait_for_selector("#line:enabled")
    assert page.locator(".item.call").count() == 0
    page.fill("#line", "increment_counter count=3")
    page.keyboard.press("Shift+Enter")  # a new line, and nothing is sent
    assert page.input_value("#line") == "increment_counter count=3\n"
    page.keyboard.press("Enter")
    page.wait_for_selector(".item.call .output")
    page.reload()
    page.wait_for_selector(".item.call .output")  # the address names the rollout
    page.wait_for_selector("#line:enabled")
    page.click("button:has-text('Verdict')")
    assert "reward" in tab.text("section.item")
    tab.keep("play")


def test_a_collection_is_controlled_and_a_wrong_number_at_once_is_refused_in_words(
    tab: Tab, folder: Path, viewer: Viewer
):
    with viewed_runs.being_written(folder / "first"):
        tab.open(f"/run/{tab.keys['first']}", "[aria-label='Control of the collection'] input")
        page, field = tab.page, tab.page.locator("[aria-label='Control of the collection'] input")
        for typed in ("0", "", "2.5"):
            field.fill(typed)
            with page.expect_response("**/api/run?*"):  # the page is drawn again before the person has finished
                viewer.runs.runs[tab.keys["first"]].index.version += 1
            field.blur()
            page.wait_for_selector(f"text=is a whole number from 1 to 1,000,000, not {typed or 'nothing'}")
            assert field.input_value() == "4"
        assert not (folder / "first" / "control.json").exists()
        page.click("button:has-text('Pause')")
        page.wait_for_selector(".stat:has-text('Speed'):has-text('paused')")
        page.click("button:has-text('Resume')")
        page.wait_for_selector(".stat:has-text('Speed'):has-text('paused')", state="detached")
        field.fill("2")
        field.blur()
        waiting.until(lambda: page.evaluate("1") and '"concurrency":2' in (folder / "first/control.json").read_text())
    (folder / "first" / "control.json").unlink()


def test_a_query_of_a_thousand_filters_is_refused_in_one_line(browser: Any, viewer: Viewer):
    own = Tab(browser, viewer)  # the browser complains about every reply with status 400
    own.open(f"/run/{own.keys['first']}?tab=rollouts&q=" + "reward%3A0%20" * 1000, ".problem")
    assert own.text(".problem") == "a query has at most 40 words and filters. Leave some out"
    own.context.close()


def test_two_rollouts_stand_side_by_side_and_say_what_is_identical(tab: Tab):
    tab.open(f"/diff/{tab.keys['first']}/1/5", ".diff-cell.differs mark")
    assert "different tasks" in tab.text(".warning")
    assert "1 item of 6 is identical. The first difference is in item 1." in tab.text(".verdict-line")
    tab.open(f"/run/{tab.keys['first']}/rollout/1", ".repeats a:has-text('compare')")
    page = tab.page
    page.click(".repeats a:has-text('compare') >> nth=0")
    page.wait_for_selector(".diff .item.assistant")
    page.wait_for_selector(".verdict-line:has-text('The two rollouts are identical: 6 items.')")
    assert page.locator(".diff-cell h3:has-text('identical')").count() == 12
    assert page.locator(".diff mark").count() == 0
    page.set_viewport_size({"width": 390, "height": 740})
    cells = page.locator(".diff-cell")
    assert sum(cells.nth(place).is_visible() for place in range(12)) == 6  # on a phone an identical item stands once
    page.set_viewport_size({"width": 1280, "height": 860})
    tab.open(f"/diff/{tab.keys['harness']}/1/1", ".diff-cell")
    line = "The main threads of the two rollouts are identical: 4 items. Sub-agents and side calls are not compared."
    assert tab.text(".verdict-line") == line


def test_the_times_of_a_rollout_add_up_to_its_total(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}/rollout/1", "aside h2:has-text('Time')")
    section = tab.page.locator("aside section:has(h2:has-text('Time'))")
    assert "the agent, and waiting for a slot" in section.inner_text()
    total, *parts = (
        float(text.split()[0]) / (1000 if text.endswith("ms") else 1)
        for text in [section.locator("h2 span").inner_text(), *section.locator("dd").all_inner_texts()]
    )
    assert sum(parts) == pytest.approx(total, rel=0.05)


def test_a_component_that_lowers_the_reward_has_a_bar_of_its_size_in_another_colour(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}", "section[aria-label='Reward components'] .bars")
    bar = tab.page.locator("section[aria-label='Reward components'] li:has-text('too long') .bar-track > i")
    assert bar.get_attribute("class") == "bad"
    assert "25%" in (bar.get_attribute("style") or "")
    assert "orange lowers it" in tab.text("section[aria-label='Reward components']")


def test_each_kind_of_failure_is_named_beside_its_cause(tab: Tab):
    tab.open(f"/run/{tab.keys['first']}", "section[aria-label='Failures'] .cause")
    causes = tab.page.locator("section[aria-label='Failures'] .cause").all_inner_texts()
    assert causes[0].startswith("tool timeout: tool `refund` timed out after 30 s")
    assert causes[1].startswith("model http_429: the endpoint answered 429")


def test_the_answer_stands_beside_what_was_expected_and_the_judge_says_why(tab: Tab):
    tab.open(f"/run/{tab.keys['judged']}/rollout/1", ".verdict-end")
    page = tab.page
    assert page.locator(".verdict-end .beside > div:nth-child(2)").inner_text().splitlines()[-1] == "cold"
    assert "Are the two answers equal?" in tab.text(".verdict-end .transcript .item.user")
    assert "They mean the same. [[A=B]]" in tab.text(".verdict-end .transcript .item.assistant")
    assert "[[A=B]]" in tab.text(".verdict-end .transcript summary")
    assert "judge_evaluations" not in tab.text("aside section")


def test_threads_of_a_program_are_a_tree_with_folded_side_calls_and_marked_restored_turns(tab: Tab):
    tab.open(f"/run/{tab.keys['harness']}/rollout/1", ".threads")
    page = tab.page
    assert "5 threads" in tab.text(".threads h2")
    assert page.locator(".threads .tree > li > ul > li > ul > li > a").inner_text() == "agent-2"
    assert "sub-agent · 2 calls · reward 0.500" in tab.text(".threads .tree > li > ul > li")
    assert not page.locator("a:has-text('side-1')").is_visible()
    marks = page.locator(".restored").all_inner_texts()
    assert marks[0].startswith(
        "2 restored items: as the model wrote them, not as the program repeated them; 1 answer saved"
    )
    assert marks[1].startswith("restored: the model got 2 items as it wrote them")
    mark = page.locator(".conversation .restored").bounding_box()
    answer = page.locator(".item.assistant").bounding_box()
    assert mark is not None
    assert answer is not None
    assert 0 < answer["y"] - mark["y"] < 60  # it stands right before the turn
    tab.keep("threads")
    page.click(".threads summary")
    page.click("a:has-text('side-1')")
    page.wait_for_selector(".item.assistant:has-text('Finding the old function')")
    assert "thread=side-1" in page.url
    page.click(".threads a:has-text('agent-1')")
    page.wait_for_selector(".item.call:has-text('grep')")
    page.wait_for_selector(".item.system:has-text('You search.')")
    page.click("button:has-text('Token probabilities')")  # a sub-agent's tokens are those of the same policy
    page.wait_for_selector(".written .token.lp2")
    assert page.locator(".written .token").all_inner_texts() == ["50", "140", "51", "141"]
    page.click(".threads a:has-text('main')")
    page.wait_for_selector(".item.assistant:has-text('called in two files')")
    page.click("button:has-text('Token probabilities')")
    page.wait_for_selector(".written + .restored, .restored + .written")  # the mark stays before its turn


def test_tokens_stand_as_text_in_the_conversation_with_probabilities_and_alternatives(tab: Tab):
    tab.open(f"/run/{tab.keys['spoken']}/rollout/1", "button:has-text('Token probabilities')")
    page = tab.page
    page.click("button:has-text('Token probabilities')")
    page.wait_for_selector(".written .token")
    words = page.locator(".written .token")
    assert words.all_inner_texts() == ["It", " is", " cold"]
    assert words.nth(2).get_attribute("title") == '" cold": 61 %\nor " warm": 37 %\npolicy step-7'
    assert "lp1" in (words.nth(2).get_attribute("class") or "")
    assert "policy step-7" in tab.text(".written h3")
    tab.keep("written")
    page.click("button:has-text('Token probabilities')")
    page.wait_for_selector(".item.assistant:not(.written)")
    tab.open(f"/run/{tab.keys['first']}/rollout/1", "button:has-text('Token probabilities')")
    page.click("button:has-text('Token probabilities')")
    page.wait_for_selector(".written .token")
    assert words.first.inner_text().isdigit()  # no tokenizer is known: ids
    assert "Text needs the tokenizer" in tab.text(".conversation")
    page.wait_for_selector(".output:has-text('A-1000')")  # outputs of tools stay


def test_ids_stand_in_the_conversation_while_the_tokenizer_loads_and_then_text(
    browser: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    transformers = SlowTransformers().install(monkeypatch)
    with viewing(folder / "first", tokenizer="models/slow") as viewer:
        until_indexed(viewer)
        tab = Tab(browser, viewer)
        page = tab.page
        tab.open(f"/run/{tab.keys['first']}/rollout/1", "button:has-text('Token probabilities')")
        page.click("button:has-text('Token probabilities')")
        page.wait_for_selector(".conversation [role=status]:has-text('models/slow is loading')")
        ids = page.locator(".written .token").all_inner_texts()
        assert all(token.isdigit() for token in ids)
        tab.keep("tokenizer-loading")
        transformers.may_load.set()
        page.wait_for_selector(".written .token:has-text('[')")
        assert page.locator(".written .token").all_inner_texts() == [f"[{token}]" for token in ids]
        assert page.locator(".conversation [role=status]").count() == 0
        tab.context.close()


def test_images_and_sounds_of_rows_and_outputs_are_shown(tab: Tab):
    tab.open(f"/run/{tab.keys['spoken']}/rollout/1", "audio.sound")
    page = tab.page
    assert page.locator(".item.user audio.sound").count() == 1
    assert page.locator(".output img.picture").count() == 1
    seconds = page.wait_for_function("() => document.querySelector('audio.sound').duration || null").json_value()
    assert seconds == pytest.approx(0.1, abs=0.02)  # the browser could read it
    tab.open(f"/run/{tab.keys['spoken']}/rollout/1?tab=task", ".stack img.picture")
    assert page.locator(".stack audio.sound").count() == 1
    assert page.locator(".stack .j-text:has-text('data:audio/wav')").count() == 1  # no sound, by its first bytes


def test_one_search_finds_rollouts_of_all_runs(tab: Tab):
    tab.open("/", "table.runs")
    page = tab.page
    page.click("text=Search all rollouts")
    page.fill("#search", "refunded reward:1")
    page.wait_for_selector(".found[data-shows='refunded reward:1']")
    names = page.locator(".card h2").all_inner_texts()
    assert {Path(name).name for name in names} == {"first", "second"}
    assert "rollouts in 2 runs" in tab.text(".found")
    page.click("table.rollouts a >> nth=0")
    page.wait_for_selector(".conversation mark")
    page.wait_for_function("() => /first|second/.test(document.querySelector('nav.crumbs').innerText)")


def test_a_speed_has_its_unit_and_auto_is_shown_as_auto(tab: Tab, folder: Path, viewer: Viewer):
    described = (folder / "second" / "run.json").read_text()
    (folder / "second" / "run.json").write_text(described.replace('"concurrency": 4', '"concurrency": "auto"'))
    with viewed_runs.being_written(folder / "second"):
        tab.open(f"/run/{tab.keys['second']}", "[aria-label='Control of the collection'] input")
        field = tab.page.locator("[aria-label='Control of the collection'] input")
        assert (field.input_value(), field.get_attribute("placeholder")) == ("", "auto")
        assert "rollouts/" in tab.text(".stat:has-text('Speed')")
        tab.open("/", "table.runs tbody tr")
        assert "running" in tab.text("table.runs tbody tr:first-child")  # a run that is written stands first
    (folder / "second" / "run.json").write_text(described)


def test_hostile_text_does_nothing_and_is_shown(tab: Tab):
    page = tab.page
    for place in ("/", f"/run/{tab.keys['hostile']}", f"/run/{tab.keys['hostile']}?tab=rollouts"):
        tab.open(place, "main")
        page.wait_for_function("() => document.body.innerText.includes('<script>window.harmed')")
    for part in ("conversation", "task", "raw"):
        tab.open(f"/run/{tab.keys['hostile']}/rollout/1?tab={part}", "#panel")
        page.wait_for_function("() => document.querySelector('#panel')?.innerText.includes('onerror=')")
    tab.open(f"/run/{tab.keys['hostile']}/rollout/1", "img.picture")
    assert page.locator("img.picture").count() == 1  # the others are no images, or somewhere else
    assert page.locator(".hidden-mark", has_text="U+202E").first.is_visible()
    assert page.evaluate("window.harmed") is None
    assert page.locator("iframe, svg[onload], main script").count() == 0
    tab.keep("hostile")


def test_a_record_with_a_wrong_reward_is_shown_and_so_is_the_next(tab: Tab):
    total = tab.page.evaluate(f"fetch('/api/rollouts?run={tab.keys['hostile']}').then((r) => r.json())")["total"]
    for number in (total, total - 1, 1):
        tab.open(f"/run/{tab.keys['hostile']}/rollout/{number}", "#panel")
        tab.page.wait_for_function(f"() => document.querySelector('nav.crumbs')?.innerText.includes('{number}')")
        assert tab.page.locator(".problem").count() == 0


def test_a_rollout_of_ten_thousand_turns_opens_and_grows_while_scrolling(tab: Tab):
    tab.open(f"/run/{tab.keys['hostile']}/rollout/3", ".block")
    page = tab.page
    assert page.locator(".block").count() < 400
    scroll = "() => { scrollTo(0, document.body.scrollHeight); return document.querySelectorAll('.block').length; }"
    waiting.until(lambda: page.evaluate(scroll) > 250, every=0.2)
    tab.open(f"/run/{tab.keys['hostile']}/rollout/2", ".item .more")
    assert "Show all 200,000 characters" in tab.text(".item .more")


def test_a_run_that_grows_is_shown_without_a_reload(tab: Tab, folder: Path, viewer: Viewer):
    tab.open(f"/run/{tab.keys['second']}?tab=rollouts&q=task%3Arefund-900", "text=No rollout matches")
    page = tab.page
    with (folder / "second" / "rollouts.jsonl").open("ab") as file:
        file.write(viewed_runs.refund_rollout(900, 0, random.Random(1)).encode() + b"\n")
    page.wait_for_selector("table.rollouts tbody tr")
    assert "A-1900" in tab.text("table.rollouts")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install in src/ludus/view/web")
def test_no_page_has_a_barrier_or_is_wider_than_the_window(tab: Tab):
    first, second, hostile = tab.keys["first"], tab.keys["second"], tab.keys["hostile"]
    places = {
        "/": "table.runs",
        "/play": ".play-start",
        f"/run/{first}": ".plot circle",
        f"/run/{first}?tab=rollouts": "table.rollouts",
        f"/run/{first}?tab=about": "h2:has-text('run.json')",
        f"/run/{first}/rollout/1": ".item.assistant",
        f"/run/{first}/rollout/1?tab=tokens": ".ids .token",
        f"/run/{first}/rollout/1?tab=task": ".stack",
        f"/compare/{first}/{second}": ".tasks",
        f"/diff/{first}/1/2": ".diff",
        f"/run/{tab.keys['judged']}/rollout/1": ".verdict-end",
        "/search?q=refunded": "table.rollouts",
        f"/run/{tab.keys['harness']}/rollout/1": ".threads",
        f"/run/{tab.keys['spoken']}/rollout/1": "audio.sound",
        f"/run/{hostile}/rollout/1": ".item.assistant",
    }
    for place, shown in places.items():
        tab.open(place, shown)
        if hostile not in place:  # its elements are those of any rollout
            assert tab.barriers("light") == [], place
            assert tab.barriers("dark", COLOURS) == [], place
        assert tab.width(360) <= 360, place
        assert tab.width(1280) <= 1280, place
    tab.page.set_viewport_size({"width": 1280, "height": 860})


def test_a_lost_viewer_is_named_and_the_page_goes_on_when_it_is_back(browser: Any, viewer: Viewer):
    own = Tab(browser, viewer)
    page = own.page
    page.route("**/api/**", lambda route: route.abort())
    page.wait_for_selector(".lost:has-text('The viewer does not answer. Is ludus view still running?')")
    own.go(f"/run/{own.keys['first']}")
    page.wait_for_selector("#app > .problem:not(.lost)")
    page.unroute("**/api/**")
    page.wait_for_selector(".plot circle")
    page.wait_for_selector(".lost", state="detached")
    cookies = own.context.cookies()
    own.context.clear_cookies()  # as if the viewer were started again
    page.wait_for_selector(".lost:has-text('Press Enter in its terminal')")
    own.context.add_cookies(cookies)
    page.wait_for_selector(".lost", state="detached")
    own.open("/play", ".play-start")
    page.click("button:has-text('Start')")
    page.wait_for_selector("#line:enabled")
    page.route("**/api/play/say", lambda route: route.abort())
    page.fill("#line", "a long thought")
    page.keyboard.press("Enter")
    page.wait_for_selector(".problem:has-text('The viewer does not answer')")
    page.wait_for_selector("#line:enabled")
    assert page.input_value("#line") == "a long thought"
    page.unroute("**/api/play/say")
    own.context.close()


def test_an_exported_page_works_from_a_file(browser: Any, viewer: Viewer, tmp_path: Path):
    export_page(viewer.runs, tmp_path / "report.html", "", None)
    context = browser.new_context()
    page, complaints = context.new_page(), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.goto((tmp_path / "report.html").as_uri())
    page.click("table.runs a:has-text('first')")
    page.wait_for_selector(".plot circle")
    page.click("#tab-rollouts")
    page.click("table.rollouts tbody tr:first-child a")
    page.wait_for_selector(".item.assistant")
    page.keyboard.press("j")
    page.wait_for_selector("text=2 of")
    assert complaints == []
    assert page.evaluate("window.harmed") is None
    context.close()


def test_the_browser_never_complained_and_asked_nobody_else(tab: Tab, viewer: Viewer):
    assert tab.complaints == []
    assert {url for url in tab.outside if not url.startswith((f"{viewer.url}/", "data:"))} == set()
