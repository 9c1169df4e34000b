"""Plays rows and returns their verified rollouts in completion order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence

from ludus_nemo_gym.agent_servers import find_running, head_url

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
        """Awaitables in completion order, each of the given row and its result.

        Awaiting a failed rollout raises and does not affect the others. Agents that `RunHelper` started in this process
        are called directly. Agents of another process are found through the head and called over HTTP.
        """
        servers = servers_at(head_server_config.port if head_server_config is not None else None)
        head = _RemoteHead(head_server_config)
        played: list[asyncio.Future[Played]] = [
            asyncio.wrap_future(servers.play(row)) if servers is not None else asyncio.ensure_future(head.play(row))
            for row in examples
        ]
        for result in played:
            result.add_done_callback(_retrieve_exception)
        return asyncio.as_completed(played)


def _retrieve_exception(played: asyncio.Future[Played]) -> None:
    """Mark an exception as retrieved, so that asyncio does not log it if the caller stops at an earlier failure."""
    if not played.cancelled():
        played.exception()


class _RemoteHead:
    """A head in another process. Its list of agents is read once."""

    def __init__(self, config: BaseServerConfig | None) -> None:
        named = {"host": config.host, "port": config.port} if config is not None else {}
        self._url = head_url({HEAD_SERVER_KEY_NAME: named})
        self._lock = asyncio.Lock()
        self._agents: dict[str, str] | None = None

    async def play(self, row: Row) -> Played:
        async with self._lock:
            if self._agents is None:
                self._agents = await self._find()
        return row, await play(row, self._agents, None, "")

    async def _find(self) -> dict[str, str]:
        try:
            return (await find_running(self._url)).agents
        except UserError as error:
            raise RolloutError.with_detail(503, str(error)) from error
