"""An application for the tests of `ludus.http`: it echoes, waits, refuses, or replies at length."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from waiting import CEILING, until_async

from ludus.http.app import App
from ludus.http.messages import EVENTS, Incoming, Refusal, Reply


class Talking(App):
    """Replies with a short body, a long one, or a stream whose first event waits until the test lets it go.

    `/wait` waits for `go_on`, or until its client leaves. The test may run on the server's loop or on another thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.begun, self.left = threading.Event(), threading.Event(), threading.Event()
        self.routes |= {
            ("POST", "/echo"): self.echo,
            ("GET", "/long"): self.long,
            ("GET", "/none"): self.none,
            ("GET", "/events"): self.events,
            ("POST", "/headers"): self.headers,
            ("GET", "/wait"): self.wait,
            ("POST", "/wait"): self.wait,
            ("POST", "/refuse"): self.refuse_it,
            ("GET", "/split"): self.split,
        }

    async def echo(self, incoming: Incoming) -> Reply:
        await asyncio.sleep(0)
        return Reply(incoming.body)

    async def long(self, incoming: Incoming) -> Reply:
        return Reply(b"x" * 3_000_000)

    async def none(self, incoming: Incoming) -> Reply:
        return Reply(b"")

    async def events(self, incoming: Incoming) -> Reply:
        async def pieces() -> Any:
            await asyncio.to_thread(self.go_on.wait, CEILING)
            yield b"data: 1\n\n"
            yield b"data: 2\n\n"

        return Reply(kind=EVENTS, pieces=pieces())

    async def headers(self, incoming: Incoming) -> Reply:
        return Reply.of({name.decode(): value.decode() for name, value in incoming.scope["headers"]})

    async def wait(self, incoming: Incoming) -> Reply:
        self.begun.set()
        try:
            await incoming.cancel_on_disconnect(until_async(self.go_on.is_set))
        finally:
            self.left.set()
        return Reply(b"[1]")

    async def refuse_it(self, incoming: Incoming) -> Reply:
        raise Refusal(418, "no")

    async def split(self, incoming: Incoming) -> Reply:
        return Reply(b"{}", headers=[(b"x-name", b"one\r\nx-other: two")])
