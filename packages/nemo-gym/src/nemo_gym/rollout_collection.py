"""Rows in, verified rollouts out, as they finish."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence

from ludus_nemo_gym.running import find_running, head_url

from ludus.errors import UserError
from nemo_gym._errors import RolloutError
from nemo_gym._results import Row
from nemo_gym._servers import Played, play, servers_at
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig


class RolloutCollectionHelper:
    """Plays rows with the agents behind a head server.

    for finished in RolloutCollectionHelper().run_examples(rows, head_server_config):
        row, result = await finished
    """

    def run_examples(
        self, examples: Sequence[Row], head_server_config: BaseServerConfig | None = None
    ) -> Iterator[Awaitable[Played]]:
        """Awaitables in the order in which rollouts end, each with the row as it was given and its result.

        A failed rollout raises when it is awaited, and disturbs no other. Agents that `RunHelper` started in this
        process are asked here; those of another process over HTTP, through the head.
        """
        servers = servers_at(head_server_config.port if head_server_config is not None else None)
        head = _Head(head_server_config)
        played: list[asyncio.Future[Played]] = [
            asyncio.wrap_future(servers.play(row)) if servers is not None else asyncio.ensure_future(head.play(row))
            for row in examples
        ]
        for each in played:
            each.add_done_callback(_seen)
        return asyncio.as_completed(played)


def _seen(played: asyncio.Future[Played]) -> None:
    """A caller who stops at the first failure need not read of all the others."""
    if not played.cancelled():
        played.exception()


class _Head:
    """A head in another process. It is asked once where its agents are."""

    def __init__(self, config: BaseServerConfig | None) -> None:
        named = {"host": config.host, "port": config.port} if config is not None else {}
        self._url = head_url({HEAD_SERVER_KEY_NAME: named})
        self._asked = asyncio.Lock()
        self._agents: dict[str, str] | None = None

    async def play(self, row: Row) -> Played:
        async with self._asked:
            if self._agents is None:
                self._agents = await self._find()
        return row, await play(row, self._agents, None, "")

    async def _find(self) -> dict[str, str]:
        try:
            return (await find_running(self._url)).agents
        except UserError as error:
            raise RolloutError.saying(503, str(error)) from error
