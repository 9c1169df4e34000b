"""Experiments in a real browser: curves, the table of runs, comparisons of several runs, one task over all runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from urllib.parse import quote

import pytest
import viewed_runs
from browsing import AXE, CHROMIUM, COLOURS, Tab
from viewing import until_indexed, viewing

from ludus.view.exporting import export_page
from ludus.view.serving import Viewer

if CHROMIUM is None:
    pytest.skip("needs a browser: apt-get install chromium", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("experiments")
    viewed_runs.write_training(made / "demo" / "trained", judged_anew_from=60)
    viewed_runs.write_training(made / "demo" / "control", learns=False)
    viewed_runs.write_run(made / "shop" / "first", tasks=12)
    viewed_runs.write_run(made / "shop" / "second", tasks=12, seed=2)
    viewed_runs.write_run(made / "shop" / "third", tasks=12, seed=3)
    viewed_runs.write_judged_run(made / "plain" / "judged")
    return made


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with viewing(folder) as made:
        until_indexed(made)
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def tab(browser: Any, viewer: Viewer) -> Iterator[Tab]:
    made = Tab(browser, viewer)
    yield made
    made.context.close()


def test_a_training_opens_as_curves_over_each_other_with_bands(tab: Tab, folder: Path):
    tab.open("/", ".folders a")
    page = tab.page
    page.click(f".folders a:has-text('{folder / 'demo'}'):has-text('8')")
    page.wait_for_selector(".plot circle")
    assert page.locator(".plot .line").count() == 2
    assert page.locator(".plot .band").count() == 2
    assert page.locator(".plot a").count() == 8
    assert page.locator(".plot .new-verifier").count() == 1
    assert "Another verifier judges from here" in tab.text(".experiment")
    tab.keep("experiment")
    page.uncheck(".curves label:has-text('control') input")
    page.wait_for_function("() => document.querySelectorAll('.plot .line').length === 1")
    page.select_option("select >> nth=0", "component:right")
    page.wait_for_selector("h2:has-text('Component right')")
    page.select_option("select >> nth=1", "time")
    page.wait_for_selector(".plot text:has-text('time since the start')")
    assert "axis=time" in page.url
    page.click(".numbers summary")
    assert "0.760" in tab.text(".numbers table tbody")


def test_runs_that_differ_only_in_the_seed_are_one_curve_with_the_band_of_their_means(tab: Tab, folder: Path):
    at = quote(str(folder / "shop"))
    tab.open(f"/experiment?at={at}&seeds=apart", ".plot circle")
    page = tab.page
    assert page.locator(".plot .line").count() == 3
    apart = [_figure(page, f"{name}, checkpoint 20") for name in ("first", "second", "third")]
    page.check("text=seeds as one curve")
    page.wait_for_function("() => document.querySelectorAll('.plot .line').length === 1")
    assert page.locator(".plot .band").count() == 1
    assert "seeds=" not in page.url
    assert "first, second, third (3 seeds)" in tab.text(".curves")
    half = 4.303 * stdev(apart) / 3**0.5
    shown = page.locator(".plot a[aria-label*='(3 seeds), checkpoint 20']").get_attribute("aria-label")
    assert f"Mean reward {mean(apart):.3f}, 95 % {mean(apart) - half:.3f} to" in shown
    tab.keep("seeds")
    page.click(".plot a[aria-label*='(3 seeds), checkpoint 20']")
    page.wait_for_selector(".versus tbody tr:nth-child(3)")


def _figure(page: Any, begin: str) -> float:
    """The mean that a point of a curve tells."""
    label = page.locator(f".plot a[aria-label^='{begin}']").get_attribute("aria-label")
    return float(label.split("Mean reward ")[1].split(",")[0])


def test_a_point_of_a_curve_leads_to_its_rollouts(tab: Tab, folder: Path):
    tab.open(f"/experiment?at={quote(str(folder / 'shop'))}&seeds=apart", ".plot circle")
    page = tab.page
    page.click(".plot a[aria-label^='first, checkpoint 20']")
    page.wait_for_selector("table.rollouts tbody tr")
    assert page.input_value("#search") == 'policy:"step-20"'
    assert "12 rollouts" in tab.text(".list-head")


def test_the_table_shows_the_settings_that_differ_and_compares_three_runs(tab: Tab, folder: Path):
    tab.open(f"/experiment?at={quote(str(folder / 'shop'))}", "table.settings tbody tr:nth-child(3)")
    page = tab.page
    assert page.locator("table.settings thead th").all_inner_texts()[6:] == ["seed"]
    for name in ("first", "second", "third"):
        page.check(f"table.settings tr:has(a[href='#/run/{tab.keys[name]}']) input")
    page.click("text=Compare the 3")
    page.wait_for_selector(".versus tbody tr:nth-child(3)")
    assert page.locator(".tasks thead th").all_inner_texts() == ["Task", "A", "B", "C"]
    words = page.locator(".versus tbody tr td:last-child").all_inner_texts()
    assert words[0] == "the others are compared with it"
    assert set(words[1:]) <= {"no difference was found", "better than A", "worse than A"}
    for row, text in enumerate(words):  # a difference that was not found has no colour
        coloured = page.locator(f".versus tbody tr:nth-child({row + 1}) :is(.good-text, .bad-text)").count()
        assert coloured == (text in ("better than A", "worse than A"))
    tab.keep("compare-three")
    page.click(".tasks tbody tr:first-child td:first-child a")
    page.wait_for_selector("h1.id:has-text('refund-')")
    page.wait_for_selector(".tasks .repeats .pill")


def test_the_names_of_runs_stay_readable_beside_many_settings(tab: Tab, folder: Path):
    tab.open(f"/experiment?at={quote(str(folder))}", "table.settings tbody tr:nth-child(3)")
    name = tab.page.locator("table.settings tbody tr:first-child td:nth-child(2)").bounding_box()
    assert name is not None
    assert name["width"] >= 220


def test_a_curve_that_has_no_point_on_the_axis_says_so(tab: Tab, folder: Path):
    tab.open(f"/experiment?at={quote(str(folder))}&axis=step", ".curves li:has-text('plain/judged')")
    assert tab.text(".curves li:has-text('plain/judged')").endswith("no checkpoint")
    assert "no checkpoint" not in tab.text(".curves li:has-text('demo/trained')")


def test_one_task_is_drawn_over_checkpoints_and_leads_to_its_rollouts(tab: Tab, folder: Path):
    tab.open(f"/task?task=digit-4&at={quote(str(folder / 'demo' / 'trained'))}", ".plot circle")
    page = tab.page
    assert page.locator(".plot circle").count() == 4
    assert page.locator(".tasks tbody tr").count() == 4
    page.click(".tasks tbody tr:nth-child(3) .repeats li:nth-child(2) a")
    page.wait_for_selector("h1.id:has-text('digit-4-1')")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install in src/ludus/view/web")
def test_no_page_of_an_experiment_has_a_barrier_or_is_wider_than_the_window(tab: Tab, folder: Path):
    runs = [tab.keys[name] for name in ("first", "second", "third")]
    places = {
        f"/experiment?at={quote(str(folder / 'demo'))}": ".plot circle",
        f"/experiment?at={quote(str(folder / 'shop'))}": ".plot circle",
        f"/compare/{'/'.join(runs)}": ".versus",
        f"/task?task=digit-4&at={quote(str(folder / 'demo'))}": ".tasks",
    }
    for place, shown in places.items():
        tab.open(place, shown)
        assert tab.barriers("light") == [], place
        assert tab.barriers("dark", COLOURS) == [], place
        assert tab.width(360) <= 360, place
        assert tab.width(1280) <= 1280, place
    tab.page.set_viewport_size({"width": 1280, "height": 860})


def test_an_exported_page_holds_the_curves_of_its_folders(browser: Any, viewer: Viewer, folder: Path, tmp_path: Path):
    export_page(viewer.runs, tmp_path / "report.html", "", None)
    context = browser.new_context()
    page, complaints = context.new_page(), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    page.click(f".folders a:has-text('{folder / 'demo'}'):has-text('8')")
    page.wait_for_selector(".plot circle")
    page.select_option("select >> nth=0", "failed")
    page.wait_for_selector("h2:has-text('Share that failed')")
    assert complaints == []
    context.close()


def test_the_browser_never_complained(tab: Tab):
    assert tab.complaints == []
