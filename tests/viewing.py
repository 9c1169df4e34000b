"""A viewer on a thread, and a client that has its cookie."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import waiting

from ludus.view.database import IndexLost
from ludus.view.index import RunIndex
from ludus.view.serving import Viewer


@contextmanager
def viewing(*paths: Path, **options: Any) -> Iterator[Viewer]:
    """Serve paths until the block ends."""
    viewer, loop = Viewer(list(paths), **options), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(viewer.start(), loop).result(waiting.CEILING)
        yield viewer
    finally:
        asyncio.run_coroutine_threadsafe(viewer.stop(), loop).result(waiting.CEILING)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def until_indexed(viewer: Viewer) -> None:
    """Wait until the background threads have indexed every line and every text of every run."""
    waiting.until(lambda: all(_is_indexed(run.index) for run in viewer.runs.runs.values()), every=0.05)


def _is_indexed(index: RunIndex) -> bool:
    try:
        with index.reading() as database:
            progress = index.progress(database)
    except IndexLost:  # it is being built
        return False
    whole_lines = sum(path.read_bytes().rfind(b"\n") + 1 for path in index.journals if path.exists())
    return whole_lines == progress["facts"] == progress["texts"]


class Visitor:
    """A browser's part of the conversation: it opens the link and keeps the cookie."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.cookie = ""
        status, headers, _ = self.send("GET", viewer.link().removeprefix(viewer.url))
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request and return status, headers and body."""
        place = urlsplit(self.viewer.url)
        connection = HTTPConnection(place.hostname or "", place.port or 0, timeout=waiting.CEILING)
        given = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        connection.request(method, path, None if body is None else json.dumps(body), given)
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        connection.close()
        return found

    def ask(self, path: str, **given: Any) -> Any:
        """The answer to a question of the page."""
        status, _, body = self.send("GET", f"/api/{path}?{urlencode(given)}")
        assert status == 200, body
        return json.loads(body)
