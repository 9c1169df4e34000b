"""Builds the documentation site: `python docs/_ext/site_build.py [OUTPUT]`, without a request to any other host.

The pages are copied to a staging folder, where the generated ones join them, so that a build never changes the working
tree. A committed page marks the place of what is generated with a line `<!-- generated: NAME -->`. Sphinx turns the
staged pages into HTML with warnings as errors. Beside each `page.html` lies `page.md`, and `llms.txt` lists them all.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from api_pages import api_index, api_pages
from cli_pages import cli_reference
from environment_cards import card_pages, cards_index
from error_pages import errors_page
from included import with_included
from pictures import with_pictures
from settings_pages import settings_reference
from site_links import links_for_site
from site_map import add_toctrees
from twins import write_llms_txt, write_twins

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
OUTPUT = ROOT / "build" / "docs"
_SKIPPED = shutil.ignore_patterns("_ext", "__pycache__", "*.pyc")

#: What stands in the place of each mark.
GENERATED: dict[str, Callable[[], str]] = {
    "cli": cli_reference,
    "settings": settings_reference,
    "python": api_index,
    "errors": errors_page,
    "environments": cards_index,
}

#: The pages that are generated as a whole, by the folder that they are in.
PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "reference/python": api_pages,
    "environments": card_pages,
}
_MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def stage(folder: Path) -> None:
    """Write all pages, the generated ones among them, into an empty folder."""
    shutil.copytree(DOCS, folder, ignore=_SKIPPED)
    for name, pages in PAGES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for page, text in pages().items():
            (folder / name / f"{page}.md").write_text(text)
    for path in sorted(folder.rglob("*.md")):
        text = with_included(path.read_text(), (DOCS / path.relative_to(folder)).parent)
        text = _MARK.sub(lambda found: GENERATED[found[1]](), text)
        place = path.relative_to(folder)
        path.write_text(links_for_site(with_pictures(text, place, folder), place))
    add_toctrees(folder)


def build(output: Path = OUTPUT, staging: Path | None = None) -> None:
    """Build the site into `output`. Raises CalledProcessError if Sphinx finds a mistake."""
    staging = staging or output.with_name(f"{output.name}-pages")
    for folder in (staging, output):
        if folder.exists():
            shutil.rmtree(folder)
    stage(staging)
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    subprocess.run([*sphinx, str(staging), str(output)], check=True, env={**os.environ, "LUDUS_ROOT": str(ROOT)})
    shutil.rmtree(output / ".doctrees", ignore_errors=True)
    write_twins(staging, output)
    write_llms_txt(staging, output)


if __name__ == "__main__":
    gc.disable()  # the trees of all files live to the end, so that no search for cycles frees anything
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    try:
        build(target)
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: Sphinx found mistakes in the pages (exit code {error.returncode}): they are listed above")
    print(f"the site is in {target}: open {target / 'index.html'}")
