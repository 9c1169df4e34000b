"""All runs of the viewer: discovered again and again, and indexed in the background.

Two threads of low priority serve all runs: one indexes figures, the other texts for the search. They poll the journals
every second and index what was appended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ludus.errors import UserError
from ludus.view.journals import size
from ludus.view.live_run import LiveRun
from ludus.view.places import find_runs, folders_of
from ludus.view.texts import TextHelper

if TYPE_CHECKING:
    from ludus.store.prices import Price

log = logging.getLogger("ludus.view")

#: Seconds between two looks at the journals, and between two searches for new runs.
LOOK_EVERY = 1.0
SEARCH_EVERY = 5.0

#: How many seconds one page waits for figures that were not computed yet. Those of journals of fewer bytes never wait.
PATIENCE = 0.5
SMALL = 4 << 20

#: After smaller pieces a thread waits: many small pieces of a growing journal cost more than a few large ones.
LITTLE = 1 << 20

_NICE = 15


class LiveRuns:
    """All runs below the given paths. New runs appear while the viewer is open."""

    def __init__(self, paths: list[Path], prices: dict[str, Price]) -> None:
        self.paths, self.prices = paths, prices
        self.runs: dict[str, LiveRun] = {}
        self.version = 0
        self._refused = set[str]()
        self._stop, self._more_figures = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"ludus-view{work.__name__}", daemon=True)
            for work in (self._index_figures, self._index_texts)
        ]
        self.search()

    def search(self) -> None:
        """Look for new runs, and forget deleted ones.

        A run that cannot be indexed is left out, so that the others can be seen. Raises if that leaves none.
        """
        for key, known in list(self.runs.items()):
            if not known.run.exists():
                del self.runs[key]
                self.version += 1
        problem: UserError | None = None
        for run in find_runs(self.paths):
            if run.key in self.runs:
                continue
            try:
                self.runs[run.key] = LiveRun(run)
                self.version += 1
            except UserError as error:
                problem = error
                if run.key not in self._refused:
                    log.warning("%s", error)
                self._refused.add(run.key)
        if problem is not None and not self.runs:
            raise problem

    def start(self) -> None:
        """Begin to index in the background."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the background threads."""
        self._stop.set()
        self._more_figures.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)

    def index_all(self) -> None:
        """Index everything now, in this thread."""
        with closing(TextHelper()) as helper:
            for run in list(self.runs.values()):
                while run.grow() or run.grow_texts(helper):
                    pass

    def headlines(self) -> list[dict[str, Any]]:
        """The lines of the list of runs, without runs that were deleted or whose index is being rebuilt."""
        lines = []
        for run in list(self.runs.values()):
            with contextlib.suppress(UserError):
                lines.append(run.headline(self.prices))
        return lines

    def ready(self, runs: list[LiveRun], *, curves: bool = False) -> list[tuple[LiveRun, dict[str, Any]]]:
        """The runs whose figures are known or can be computed in `PATIENCE` seconds, with their lines in the list.

        The others are prepared soon. With `curves`, the learning curve of each run is known, too.
        """
        began, ready = monotonic(), list[tuple[LiveRun, dict[str, Any]]]()
        for run in runs:
            with contextlib.suppress(UserError):
                small = sum(map(size, run.index.journals)) < SMALL
                if small or run.is_ready(self.prices, curve=curves) or monotonic() - began < PATIENCE:
                    if curves:
                        run.curve()
                    ready.append((run, run.headline(self.prices)))
        return ready

    def versions(self) -> dict[str, int]:
        """A number for each run that changes when its pages would."""
        return {key: run.index.version for key, run in list(self.runs.items())}

    def _index_figures(self) -> None:
        _be_nice()
        searched = monotonic()
        while not self._stop.is_set():
            most = self._each(LiveRun.grow)
            if most:
                self._more_figures.set()
            for run in list(self.runs.values()):
                run.notice_changes()
            if most < LITTLE:
                for run in list(self.runs.values()):
                    if not self._stop.is_set():
                        run.prepare_pages(self.prices)
                self._stop.wait(LOOK_EVERY)
            if monotonic() - searched > SEARCH_EVERY:
                searched = monotonic()
                with contextlib.suppress(UserError):
                    self.search()

    def _index_texts(self) -> None:
        _be_nice()
        with closing(TextHelper()) as helper:
            while not self._stop.is_set():
                if self._each(lambda run: run.grow_texts(helper)) < LITTLE:
                    helper.close()
                    self._more_figures.wait(LOOK_EVERY)
                    self._more_figures.clear()

    def _each(self, grow: Callable[[LiveRun], int]) -> int:
        """The bytes of the largest piece. The runs take turns, so that a small run does not wait for a large one."""
        return max([grow(run) for run in list(self.runs.values()) if not self._stop.is_set()], default=0)


def runs_payload(runs: LiveRuns) -> dict[str, Any]:
    """The list of runs: those being written first, then the newest, and the folders that hold several.

    Runs that are not ready come later: `preparing` is their number, and the page asks again.
    """
    every = list(runs.runs.values())
    lines = [line for _, line in runs.ready(every)]
    lines.sort(key=lambda line: str(line["started"] or ""), reverse=True)
    lines.sort(key=lambda line: not line["state"]["running"])
    folders = folders_of(line["name"] for line in lines)
    preparing = len(every) - len(lines)
    shown = {"runs": lines, "paths": [str(path) for path in runs.paths], "folders": folders}
    return {**shown, "preparing": preparing, "stale": preparing > 0}


def _be_nice() -> None:
    """Lower the priority of this thread, and of the processes that it starts."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
