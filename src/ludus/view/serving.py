"""Running the viewer: a socket on loopback, the background index, and the link to open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ludus.http.listening import Listening, address, bind
from ludus.view.app import ViewApp
from ludus.view.live import LiveRuns
from ludus.view.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ludus.store.prices import Price

HOST = "127.0.0.1"


class Viewer:
    """The viewer of some paths, from `start` to `stop`.

    viewer = Viewer([Path("runs")])
    await viewer.start()
    print(viewer.link())
    """

    def __init__(
        self,
        paths: list[Path],
        *,
        port: int = 0,
        prices: dict[str, Price] | None = None,
        tokenizer: str | None = None,
        play: list[str] | None = None,
        play_model: str | None = None,
    ) -> None:
        self.runs = LiveRuns(paths, prices or {})
        decoder = Tokenizer(tokenizer) if tokenizer is not None else None
        room = None
        if play:
            from ludus.view.play import PlayRoom

            room = PlayRoom(play, play_model)
        self.app = ViewApp(self.runs, decoder, room)
        self._socket = bind("ludus view", HOST, port)
        self.url = address(HOST, self._socket.getsockname()[1])
        self._listening = Listening(self.app, self._socket)

    def link(self) -> str:
        """A new link, which works once."""
        return f"{self.url}/?token={self.app.view_guard.new_token()}"

    async def start(self) -> None:
        """Serve, and index in the background."""
        await self._listening.begin()
        self.runs.start()

    async def stop(self) -> None:
        """Stop serving and indexing."""
        if self.app.play is not None:
            await self.app.play.close()
        await self._listening.stop()
        self.runs.stop()
