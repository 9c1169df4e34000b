"""A tab of a real browser inside the viewer. Tests share one browser, one viewer and one tab."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import waiting

import ludus
from ludus.view.serving import Viewer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(ludus.__file__).parent / "view" / "web" / "node_modules" / "axe-core" / "axe.min.js"

#: Repetitions of what stands before them, which the search for barriers leaves out: each text costs about 10 ms.
REPETITIONS = [
    [".ids .token:nth-child(n+70)"],
    ["table.rollouts tbody tr:nth-child(n+6)"],
    [".tasks tr:nth-child(n+6)"],
    [".settings tr:nth-child(n+6)"],
    [".plot a:nth-of-type(n+12)"],
]

#: Waits until the browser has drawn three times.
THREE_FRAMES = """new Promise((done) => {
  const draw = (left) => (left ? requestAnimationFrame(() => draw(left - 1)) : done());
  draw(3);
})"""

#: The barriers that depend on colours, which are the only difference between a light and a dark page.
COLOURS = {"runOnly": ["color-contrast"]}


class Tab:
    """A page of the browser inside the viewer. It collects what the browser complains about, and whom it asked."""

    def __init__(self, browser: Any, viewer: Viewer) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True)
        self.context.set_default_timeout(waiting.CEILING * 1000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._complain)
        self.outside: list[str] = []
        self.page.on("request", lambda request: self.outside.append(request.url))
        self.viewer = viewer
        self.page.goto(viewer.link())
        self.page.wait_for_selector("table.runs")
        self.keys = {Path(run.run.name).name: key for key, run in viewer.runs.runs.items()}

    def _complain(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(f"{said.text} ({said.location.get('url')})")

    def open(self, place: str, shown: str) -> None:
        """Go to a place behind the #, and wait until an element is shown there.

        The way leads over a page that does not exist, so that the element is never one of the page before.
        """
        self.go("/nowhere")
        self.page.wait_for_selector("text=There is no such page.")
        self.go(place)
        self.page.wait_for_selector(shown)

    def go(self, place: str) -> None:
        """Go to a place behind the #, without waiting for its content."""
        self.page.goto(f"{self.viewer.url}/#{place}")

    def text(self, selector: str) -> str:
        """The text of an element, once it is shown."""
        return str(self.page.wait_for_selector(selector).inner_text())

    def width(self, window: int) -> int:
        """How wide the page is in a window of some width."""
        self.page.set_viewport_size({"width": window, "height": 740})
        self.page.wait_for_function("(width) => innerWidth === width", arg=window)
        self.page.evaluate(THREE_FRAMES)  # charts are drawn again when they see their new size
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def barriers(self, theme: str, options: dict[str, Any] | None = None) -> list[tuple[str, str]]:
        """What keeps somebody from using the page, as axe-core finds it: the rule, and the element."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        self.page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        run = "([context, given]) => axe.run(context, given).then((found) => found.violations)"
        given = {"resultTypes": ["violations"], **(options or {})}
        found = self.page.evaluate(run, [{"include": [["html"]], "exclude": REPETITIONS}, given])
        self.page.evaluate("delete document.documentElement.dataset.theme")
        return [(each["id"], each["nodes"][0]["html"][:200]) for each in found]

    def keep(self, name: str) -> None:
        """Keep a screenshot in the folder that LUDUS_SCREENSHOTS names, if it names one."""
        if kept := os.environ.get("LUDUS_SCREENSHOTS"):
            self.page.evaluate("document.fonts.ready.then(() => new Promise((done) => requestAnimationFrame(done)))")
            self.page.screenshot(path=str(Path(kept) / f"{name}.png"), animations="disabled")
