"""The documentation site: one build without a warning, with a Markdown twin of each page, a search index and a map."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import site_map
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


def test_the_search_finds_pages_by_their_words(site):
    index = (site / "searchindex.js").read_text()
    assert "troubleshooting/errors" in index
    assert "get-started/index" in index
    assert "Pages come before dumps" in (site / "_static" / "searchtools.js").read_text()


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
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        for name in ("environment-tutorials/creating", "trust", "collecting", "get-started/index"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
            code = "[...document.querySelectorAll('div[class*=highlight-]:not(.highlight-text) pre')]"
            assert page.evaluate(f"{code}.filter(each => each.scrollWidth > each.clientWidth).length") == 0, name
        browser.close()
