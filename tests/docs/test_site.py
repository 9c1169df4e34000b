"""The documentation site: one build without a warning, with a Markdown twin of each page, a search index and a map."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import site_map
import waiting
from browsing import CHROMIUM

pytest.importorskip("sphinx", reason="the site is built by make docs, with the extra docs")
pytest.importorskip("furo", reason="the site is built by make docs, with the extra docs")

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

#: What a browser loads by itself while it shows a page. A link that a reader follows is not among it.
LOADED = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc=[\"']([^\"']+)|"
    r"<link\b(?![^>]*rel=[\"'](?:next|prev|search|index|author|canonical))[^>]*\bhref=[\"']([^\"']+)|"
    r"(?:@import\s+(?:url\()?|url\()[\"']?([^\"')]+)"
)

#: What somebody types on the first day, and the page that answers.
QUESTIONS = {
    "install": "get-started/index",
    "which agent": "get-started/which-agent",
    "which model": "get-started/which-model",
    "local model": "get-started/which-model",
    "api key": "model-server/openai",
    "how do I write an environment": "environment-tutorials/index",
    "judge": "environment-tutorials/llm-as-judge",
    "python tool": "resources-server/python-tools",
    "task id": "get-started/naming-tasks",
    "record format": "get-started/record",
    "why did a rollout fail": "get-started/failures",
    "what does it cost": "get-started/costs",
    "train on cpu": "get-started/first-training-run",
    "compare runs": "view",
    "resume": "get-started/rollout-collection",
    "docker sandbox": "sandbox",
    "nemo gym": "moving/from-nemo-gym",
    "error http_429": "troubleshooting/errors",
    "rate limit 429": "models",
    "timeout": "get-started/failures",
}
DUMP = re.compile(r"troubleshooting/errors|reference/(?:python/|configuration)|environments/(?!index)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Sphinx ends with an error at the first warning."""
    output = tmp_path_factory.mktemp("site") / "docs"
    command = [sys.executable, str(ROOT / "docs" / "_ext" / "site_build.py"), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return output


def test_every_page_of_the_map_is_built(site):
    missing = [page for page in site_map.map_pages() if not (site / f"{page}.html").is_file()]
    assert not missing
    assert (site / "environments" / "mcqa.html").is_file()
    assert (site / "reference" / "python" / "train.html").is_file()


def test_every_page_has_a_markdown_twin_that_llms_txt_lists(site):
    listed = set(re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(), re.MULTILINE))
    own = {"genindex.html", "search.html"}
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - own
    assert {page.removesuffix(".html") + ".md" for page in pages} == listed
    assert all((site / page).is_file() for page in listed)
    assert "{toctree}" not in (site / "index.md").read_text()
    assert "ludus collect" in (site / "reference" / "cli.md").read_text()


@contextmanager
def opened_page(width: int = 1280) -> Iterator[Any]:
    """A page of a real browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(waiting.CEILING * 1000)
        yield page
        browser.close()


def test_the_search_puts_the_page_that_answers_before_others_and_dumps_last(site):
    links = "[...document.querySelectorAll('ul.search > li > a')].map(link => link.getAttribute('href'))"
    with opened_page() as page:
        for question, answer in QUESTIONS.items():
            page.goto(f"{(site / 'search.html').as_uri()}?{urlencode({'q': question})}")
            page.wait_for_function("/found/.test(document.querySelector('.search-summary')?.innerText)")
            found = [link.split(".html")[0] for link in page.evaluate(links)]
            assert answer in found[:3], (question, found[:5])
            dumps = [DUMP.match(name) is not None for name in found]
            assert dumps == sorted(dumps), (question, found)


def test_no_page_loads_anything_from_another_host(site):
    foreign = []
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        for found in LOADED.finditer(path.read_text()):
            address = next(filter(None, found.groups()))
            if re.match(r"(?:https?:)?//", address):
                foreign.append((path.name, address))
    assert not foreign


def test_pages_have_a_dark_mode(site):
    assert "theme-toggle" in (site / "index.html").read_text()


@pytest.mark.parametrize("width", [390, 1024, 1280, 1440])
def test_code_is_not_cut_off_and_no_page_scrolls_sideways(site, width):
    code = "[...document.querySelectorAll('div[class*=highlight-]:not(.highlight-text) pre')]"
    with opened_page(width) as page:
        for name in ("environment-tutorials/creating", "trust", "collecting", "get-started/index"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
            assert page.evaluate(f"{code}.filter(each => each.scrollWidth > each.clientWidth).length") == 0, name
