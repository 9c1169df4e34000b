"""The pictures of the documentation: shown with alternative texts, self-contained, small and up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pictures import with_pictures
from record_quickstart import CAST, COLUMNS, LONGEST, MAX_BYTES, PICTURE, ROWS, TITLE, commands
from terminal_svg import draw

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
DRAWINGS = sorted(IMAGES.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)")


def test_each_picture_is_shown_on_a_page_with_an_alternative_text() -> None:
    shown = {}
    for page in (ROOT / "docs").rglob("*.md"):
        for words, target in _SHOWN.findall(page.read_text()):
            path = (page.parent / target).resolve()
            assert path.is_file(), f"{page}: there is no picture {target}"
            shown[path] = words
    for picture in (*DRAWINGS, *IMAGES.glob("*.png")):
        assert len(shown.get(picture.resolve(), "").split()) > 1, (
            f"no page shows {picture.name} with an alternative text"
        )


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_small_named_and_loads_nothing(path: Path) -> None:
    text = path.read_text()
    assert len(text.encode()) < (MAX_BYTES if path == PICTURE else 20_000)
    root = ElementTree.fromstring(text)
    assert (root.findtext(f"{SVG}title") or "").strip()
    assert not [each.tag for each in root.iter() if each.tag in (f"{SVG}script", f"{SVG}foreignObject", f"{SVG}image")]
    assert "href" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_the_recording_runs_the_commands_of_the_quickstart_within_a_minute() -> None:
    head, *events = map(json.loads, CAST.read_text().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, COLUMNS, ROWS)
    assert [data for _, kind, data in events if kind == "m"] == commands(), "run tests/record_quickstart.py"
    times = [when for when, _, _ in events]
    assert times == sorted(times)
    assert times[-1] < LONGEST


def test_the_moving_picture_is_drawn_from_the_recording() -> None:
    assert PICTURE.read_text() == draw(CAST.read_text(), TITLE), "run tests/record_quickstart.py --draw"


def test_what_a_progress_bar_replaces_is_hidden_when_the_next_state_begins() -> None:
    cast = [
        {"version": 2, "width": 20, "height": 4},
        (1.0, "o", "1 of 2"),
        (3.0, "o", "\r\x1b[2K\x1b[32m2 of 2\x1b[0m"),
    ]
    picture = draw("\n".join(map(json.dumps, cast)), "A count")
    texts = {each.text: each.get("class", "").split() for each in ElementTree.fromstring(picture).iter(f"{SVG}text")}
    assert texts.keys() == {"1 of 2", "2 of 2"}
    assert "gone" in texts["1 of 2"]
    assert "c2" in texts["2 of 2"]
    assert "gone" not in texts["2 of 2"]


def test_lines_above_the_window_scroll_out() -> None:
    cast = [{"version": 2, "width": 20, "height": 3}, *((each, "o", f"line {each}\r\n") for each in range(1, 6))]
    picture = draw("\n".join(map(json.dumps, cast)), "Five lines")
    assert "#sheet{transform:translateY(-51px)}" in picture  # five lines and the cursor's: three are above


def test_the_site_gets_a_copy_of_a_picture_from_outside_docs(tmp_path: Path) -> None:
    page = Path("get-started/first-training-run.md")
    text = with_pictures((ROOT / "docs" / page).read_text(), page, tmp_path)
    (words, target), *_ = _SHOWN.findall(text)
    assert "controls" in words
    copy = (tmp_path / page.parent / target).resolve()
    assert copy.is_relative_to(tmp_path)
    assert copy.read_bytes() == (ROOT / "examples/train_grpo/results/sort_numbers.png").read_bytes()
    inside = "![One run](../images/view-run.png)"
    assert with_pictures(inside, page, tmp_path) == inside
