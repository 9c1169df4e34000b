"""Screenshots of the viewer, of runs that are always the same.

    python tests/take_screenshots.py                  # those that the docs show, into docs/images
    python tests/take_screenshots.py --every FOLDER   # every page, wide and narrow, light and dark, to look at

Needs chromium, playwright and Pillow.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import viewed_runs
import waiting
from browsing import CHROMIUM, Tab
from PIL import Image
from playwright.sync_api import sync_playwright
from viewing import viewing

IMAGES = Path(__file__).parent.parent / "docs" / "images"
MAX_BYTES = 150_000

CARD = {
    "environment": "shop_support",
    "verdict": "not shown",
    "oracle": 1.0,
    "rows": 24,
    "best_exploit": {"family": "constant", "best": "say sorry", "reward": 0.04, "limit": 0.05},
    "false_positive_rate": 0.0,
    "false_negative_rate": 0.02,
    "checks": [
        {"name": "exploits", "status": "passed", "reason": "", "claim": ""},
        {"name": "isolation", "status": "skipped", "reason": "the environment shares nothing", "claim": ""},
    ],
}

#: Each page: its place (A, B and H are runs), what must be shown before the picture is taken, and what is clicked.
PAGES: dict[str, tuple[str, str, str]] = {
    "runs": ("/", "table.runs tbody tr:nth-child(2)", ""),
    "run": ("/run/A", ".plot circle", ""),
    "experiment": ("/experiment?at=runs/demo", ".plot circle", ""),
    "training": ("/experiment?at=runs/demo&axis=time&figure=component:right", ".plot circle", ""),
    "one-task": ("/task?at=runs/demo/trained&task=digit-4", ".plot circle", ""),
    "rollouts": ("/run/A?tab=rollouts", "table.rollouts", ""),
    "about": ("/run/A?tab=about", "h2:has-text('run.json')", ""),
    "rollout": ("/run/A/rollout/10", ".item.assistant", ""),
    "failed": ("/run/A/rollout/94", ".item", ""),
    "tokens": ("/run/A/rollout/26?tab=tokens", ".ids .token", ".chips button:has-text('logprob')"),
    "task": ("/run/A/rollout/10?tab=task", ".stack", ""),
    "raw": ("/run/A/rollout/10?tab=raw", "#panel .text", ""),
    "compare": ("/compare/A/B", ".tasks", ""),
    "compare-three": ("/compare/A/B/S", ".versus", ""),
    "diff": ("/diff/A/1/30", ".diff-cell", ""),
    "play": ("/play", ".play-start", ".play-start button"),
    "hostile": ("/run/H/rollout/1", "img.picture", ""),
}
IN_DOCS = {"runs": 390, "experiment": 800, "run": 860, "rollout": 860, "tokens": 1000}


def take(tab: Tab, name: str) -> None:
    """Show a page, ready for its picture."""
    place, shown, clicked = PAGES[name]
    for letter, run in (("A", "first"), ("B", "second"), ("H", "hostile"), ("S", "greedy-0060")):
        place = place.replace(f"/{letter}", f"/{tab.keys.get(run)}")
    tab.open(place, shown)
    if clicked:
        tab.page.click(clicked)
    if name == "play":
        tab.page.wait_for_selector("#line:enabled")
    tab.page.evaluate("document.fonts.ready.then(() => new Promise((done) => requestAnimationFrame(done)))")


def small_png(picture: bytes) -> bytes:
    """The picture in its own colours, or in 256 if it is too large."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for shown in (image, image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)):
        small = io.BytesIO()
        shown.save(small, "PNG", optimize=True)
        if len(small.getvalue()) < MAX_BYTES:
            return small.getvalue()
    raise ValueError(f"the picture has {len(small.getvalue()):,} bytes: choose a smaller window")


def write(tab: Tab, given: Any) -> None:
    page = tab.page
    if given.every is None:
        for name, height in IN_DOCS.items():
            page.set_viewport_size({"width": 1200, "height": height})
            take(tab, name)
            (IMAGES / f"view-{name}.png").write_bytes(small_png(page.screenshot(animations="disabled")))
        return
    given.every.mkdir(parents=True, exist_ok=True)
    for name in given.pages or PAGES:
        for theme, width, height in (("light", 1280, 860), ("dark", 1280, 860), ("light", 360, 1400)):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=theme)
            take(tab, name)
            picture = page.screenshot(animations="disabled")
            (given.every / f"{name}-{width}-{theme}.png").write_bytes(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=Path)
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        os.chdir(scratch)
        folder = Path("runs")
        for name, seed in (("first", 1), ("second", 2)):
            viewed_runs.write_run(folder / name, seed=seed)
        for name in ("trained", "control"):
            viewed_runs.write_training(folder / "demo" / name, tuple(range(0, 200, 20)), learns=name == "trained")
        (folder / "first" / "card.json").write_text(json.dumps(CARD))
        if given.every is not None:
            viewed_runs.write_hostile_run(folder / "hostile", turns=50)
        with viewing(folder, play=["example_session_state_mgmt"]) as viewer:
            waiting.until(
                lambda: not any(run.index.grow() or run.index.unsearched() for run in viewer.runs.runs.values())
            )
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            write(Tab(browser, viewer), given)
            browser.close()


if __name__ == "__main__":
    main()
