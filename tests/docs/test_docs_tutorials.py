"""Every tutorial can be followed from top to bottom in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import TUTORIALS, follow_or_skip, name, pages_to_follow


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_to_follow(*TUTORIALS), ids=name)
def test_the_tutorial_can_be_followed_in_an_empty_folder(page: Path, tmp_path: Path, model_address: str):
    follow_or_skip(page, tmp_path, model_address)
