"""Every tutorial can be followed from top to bottom in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from doc_pages import DOCS, TUTORIALS, blocks, follow_or_skip, name, pages_to_follow


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_to_follow(*TUTORIALS), ids=name)
def test_the_tutorial_can_be_followed_in_an_empty_folder(page: Path, tmp_path: Path, model_address: str):
    follow_or_skip(page, tmp_path, model_address)


def test_the_first_tutorial_explains_every_key_of_its_environment_file():
    page = (DOCS / "environment-tutorials" / "creating.md").read_text(encoding="utf-8")
    (file,) = [block for block in blocks(page) if block.file == "change/environment.yaml"]
    after = page.partition(file.text)[2].partition("## Rows")[0]
    wired = yaml.safe_load(file.text)
    for key in [*wired, *wired["agent"], *wired["datasets"][0]]:
        assert f"`{key}`" in after, f"{key} is not explained"
