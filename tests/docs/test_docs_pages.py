"""Every page of the documentation's sections can be followed from top to bottom in an empty folder.

The tutorials are followed by test_docs_tutorials.py, so that two processes can share the work.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import site_map
from doc_pages import (
    DOCS,
    GUIDES,
    TUTORIALS,
    Block,
    accepts,
    blocks,
    check,
    follow,
    follow_or_skip,
    name,
    pages,
    pages_to_follow,
)

PAGES = pages(*GUIDES, *TUTORIALS)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_to_follow(*GUIDES), ids=name)
def test_the_page_can_be_followed_in_an_empty_folder(page: Path, tmp_path: Path, model_address: str):
    follow_or_skip(page, tmp_path, model_address)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_needs_other_machines_names_real_commands_and_imports(page: Path):
    for block in blocks(page.read_text()):
        if not block.runs:
            check(block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_page_is_wrapped_at_120_columns(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
    assert long == []


def test_every_page_is_in_the_map_of_the_site_exactly_once():
    listed = Counter(site_map.page_of(section, page) for section in site_map.SECTIONS for page in section.pages)
    assert {page: count for page, count in listed.items() if count > 1} == {}
    written = {page.relative_to(DOCS).with_suffix("").as_posix() for page in [*PAGES, *DOCS.glob("*.md")]}
    assert sorted(page for page in written - set(listed) if not page.endswith("index")) == []


def test_no_page_holds_a_list_of_pages_of_its_own():
    assert [name(page) for page in [*PAGES, *DOCS.glob("*.md")] if "{toctree}" in page.read_text()] == []


def test_a_block_that_needs_a_gpu_is_checked_and_not_run():
    (block,) = blocks("Text.\n\n<!-- needs: gpu -->\n```bash\nludus collect mcqa --modle x\n```\n")
    assert block == Block("bash", "ludus collect mcqa --modle x\n", "gpu", 3)
    assert not block.runs
    with pytest.raises(Exception, match="modle"):
        check(block)
    accepts(["data", "export", "runs/a", "--to", "sft", "--output", "x.jsonl"])


def test_a_page_whose_command_fails_is_reported_with_its_line(tmp_path: Path):
    broken = tmp_path / "page.md"
    broken.write_text("# Page\n\n```python\n# a.py\nx = 1\n```\n\n```bash\ntest -f a.py\n```\n\n```bash\nfalse\n```\n")
    folder = tmp_path / "work"
    folder.mkdir()
    with pytest.raises(AssertionError, match="== line 12"):
        follow(broken, folder, "127.0.0.1:9")
    assert (folder / "a.py").read_text() == "# a.py\nx = 1\n"
