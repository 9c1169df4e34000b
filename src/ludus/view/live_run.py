"""A run that is looked at while it is written: its index, its state and its speed."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.errors import UserError
from ludus.http.messages import Refusal
from ludus.store.files import read_json_object
from ludus.store.verifiers import verifier_warnings
from ludus.view.curves import curve_of
from ludus.view.index import RunIndex
from ludus.view.places import ViewedRun
from ludus.view.remembered import is_remembered, remembered
from ludus.view.rolling import rolling_reward
from ludus.view.summary import headline, overview
from ludus.view.texts import TextHelper

if TYPE_CHECKING:
    from ludus.store.prices import Price

log = logging.getLogger("ludus.view")

#: The seconds over which the speed of a running collection is measured.
WINDOW = 120.0


class LiveRun:
    """A run with its index, its speed and the last computed figures."""

    def __init__(self, run: ViewedRun) -> None:
        self.run = run
        self.index = RunIndex(run)
        self._problems: dict[str, str] = {}
        # What pages were told. Only `notice_changes` takes it back: one page that asks must not keep it from another.
        self._running = False
        self._asked: dict[str, Any] = {}
        self._was_paused = False
        self._seen: deque[tuple[float, int]] = deque(maxlen=200)
        self._kept: dict[str, _Kept] = {}
        self._prepared = -1  # the version of the index whose pages were prepared
        self._computing = threading.Lock()

    @property
    def problem(self) -> str | None:
        """Why the run cannot be indexed now."""
        return next(iter(list(self._problems.values())), None)

    def grow(self) -> int:
        """Index the next figures. Returns how many bytes; 0 if there is nothing to do now."""
        return self._tried("figures", self.index.grow)

    def grow_texts(self, helper: TextHelper) -> int:
        """Index the next text for the search, a large one in a helper process. Returns how many bytes, as `grow`."""

        def grow() -> int:
            left = self.index.unsearched()
            return helper.grow(self.index.texts, left) if left else 0

        return self._tried("texts", grow)

    def _tried(self, what: str, grow: Callable[[], int]) -> int:
        try:
            grown = grow()
        except Exception as error:  # whatever it is, the other runs go on
            said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            if self.problem is None:
                log.warning("%s", said)
            self._problems[what] = said
            return 0
        self._problems.pop(what, None)
        return grown

    def headline(self, prices: dict[str, Price]) -> dict[str, Any]:
        """The run's line in the list of runs."""
        described = self.run.described()
        identity = _object(described.get("identity"))
        model = str(_object(identity.get("model")).get("name") or "")

        scales, planned = self.run.scales, self._planned_tasks(described)
        settings = prices, model, scales, planned

        def compute() -> dict[str, Any]:
            figures = remembered(
                self.index, "headline", settings, lambda rows: headline(rows, prices, model, scales, planned or 0)
            )
            with self.index.reading() as database:
                return {**figures, "index": self.index.progress(database)}

        figures = dict(self._once("headline", compute))
        environments = list(_object(identity.get("environments"))) or [name for name in figures["environments"] if name]
        return {
            **figures,
            "key": self.run.key,
            "name": self.run.name,
            "environments": environments,
            "model": model or ", ".join(figures["models"]),
            "started": described.get("started"),
            "state": self.state(described, figures["counts"]["dispatched"]),
            "problem": self.problem,
        }

    def is_ready(self, prices: dict[str, Price], *, curve: bool) -> bool:
        """Whether the run's line in the list of runs, and with `curve` its curve, are known without computing them."""
        described = self.run.described()
        model = str(_object(_object(described.get("identity")).get("model")).get("name") or "")
        settings = prices, model, self.run.scales, self._planned_tasks(described)
        wanted = {"headline": settings, **({"curve": self.run.scales} if curve else {})}
        return all(name in self._kept or is_remembered(self.index, name, asked) for name, asked in wanted.items())

    def curve(self) -> dict[str, Any]:
        """The points of the run's learning curve."""
        scales = self.run.scales
        return self._once("curve", lambda: remembered(self.index, "curve", scales, lambda rows: curve_of(rows, scales)))

    def prepare_pages(self, prices: dict[str, Price]) -> None:
        """Compute what the pages of many runs show, once the run has ended and is indexed."""
        version = self.index.version
        if self._prepared == version or writer_of(self.run.files.rollouts) is not None:
            return
        try:
            self.headline(prices)
            self.curve()
        except UserError:  # the index is being rebuilt: the next look prepares them
            return
        except Exception as error:  # whatever it is, the other runs go on
            log.warning("%s: %s: %s", self.run.name, type(error).__name__, error)
        self._prepared = version

    def overview(self, prices: dict[str, Price]) -> dict[str, Any]:
        """Everything on the run's own page."""
        from ludus.view.cards import cards_of

        scales = self.run.scales

        def compute() -> dict[str, Any]:
            rolling = remembered(self.index, "rolling", scales, lambda rows: rolling_reward(rows, scales))
            with self.index.reading() as database:
                return {**overview(database), "rolling": rolling}

        metrics, described = self.run.metrics(), self.run.described()
        line, figures = self.headline(prices), self._once("overview", compute)
        return {
            **line,
            **figures,
            "stale": bool(line.get("stale") or figures.get("stale")),
            "described": described,
            "loop": metrics.get("loop"),
            "warnings": [*verifier_warnings(figures.get("several_verifiers") or {}), *(metrics.get("warnings") or [])],
            "cards": cards_of(self.run, line["environments"]),
        }

    def state(self, described: dict[str, Any], done: int) -> dict[str, Any]:
        """Whether the run is being written, how fast, and how long it will take."""
        pid = writer_of(self.run.files.rollouts)
        self._running |= pid is not None
        options = _object(described.get("options"))
        tasks, repeats = self._planned_tasks(described), options.get("repeats")
        total = tasks * repeats if tasks is not None and isinstance(repeats, int) else None
        control = self._control(options) if pid else None
        paused = control is not None and control["paused"]
        speed = self._speed(described, done, running=pid is not None, paused=paused)
        left = (total - done) / speed if total is not None and speed and pid is not None and total > done else None
        return {
            "running": pid is not None,
            "total": total,
            "per_second": speed,
            "seconds_left": left,
            "control": control,
        }

    def _planned_tasks(self, described: dict[str, Any]) -> int | None:
        """How many tasks the run has, if run.json says it."""
        options, dataset = _object(described.get("options")), _object(_object(described.get("identity")).get("dataset"))
        rows = [count for count in (dataset.get("rows"), options.get("limit")) if isinstance(count, int)]
        return min(rows) if rows else None

    def notice_changes(self) -> None:
        """Pages must be told that a collection ended or was paused by somebody else: neither writes a rollout."""
        if not self._running:
            return
        ended, asked = writer_of(self.run.files.rollouts) is None, read_json_object(self.run.files.control)
        if ended or asked != self._asked:
            self._running, self._asked = not ended, asked
            self.index.changed()

    def control(self, *, paused: bool, concurrency: int | None, stop: bool) -> None:
        """Ask the collection that writes this run to pause, to go on, to play fewer rollouts at once, or to stop."""
        pid = writer_of(self.run.files.rollouts)
        if not pid:
            raise Refusal(409, "no collection writes this run now")
        from ludus.collection.control import ask

        ask(self.run.files.control, pid, paused=paused, concurrency=concurrency, stop=stop)
        self.index.changed()

    def _control(self, options: dict[str, Any]) -> dict[str, Any]:
        """What was asked last. Worker processes can only be stopped."""
        asked = read_json_object(self.run.files.control)
        return {
            "only_stop": options.get("workers") != 1,
            "most": options.get("concurrency"),
            "paused": asked.get("paused") is True,
            "concurrency": asked.get("concurrency"),
            "stop": asked.get("stop") is True,
        }

    def _speed(self, described: dict[str, Any], done: int, *, running: bool, paused: bool) -> float | None:
        """Rollouts a second; None while the run is paused. A pause counts for no speed after it."""
        now = monotonic()
        wall = _object(self.run.metrics().get("seconds")).get("wall")
        if not running:
            return done / wall if isinstance(wall, (int, float)) and wall > 0 else None
        if paused:
            self._seen.clear()
            self._was_paused = True
            return None
        self._seen.append((now, done))
        while self._seen and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since > 5 and done > before:
            return (done - before) / (now - since)
        if self._was_paused:
            return None
        with contextlib.suppress(TypeError, ValueError):
            elapsed = time.time() - datetime.fromisoformat(str(described.get("started"))).timestamp()
            return done / elapsed if elapsed > 0 else None
        return None

    def _once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The figures, computed again only if the index has grown, and never more than a fifth of the time.

        Figures that are older than the index are `stale`: the page asks again.
        """
        with self._computing:
            version, cached = self.index.version, self._kept.get(name)
            if cached is not None and cached.version != version and monotonic() < cached.until:
                return {**cached.figures, "stale": True}
            if cached is None or cached.version != version:
                began = monotonic()
                figures = compute()
                cached = self._kept[name] = _Kept(version, figures, monotonic() + 4 * (monotonic() - began))
            return cached.figures


class _Kept(NamedTuple):
    """Computed figures, the version of the index that they are of, and until when they are shown in any case."""

    version: int
    figures: dict[str, Any]
    until: float


def writer_of(path: Path) -> int | None:
    """The process that writes a journal, by its lock; None if there is none. The lock itself is never touched.

    Without /proc/locks (not Linux), a journal that changed within a minute counts as being written, by process 0.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0 if time.time() - status.st_mtime < 60 else None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE" and words[5] == place:
            return int(words[4])
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
