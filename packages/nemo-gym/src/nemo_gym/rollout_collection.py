"""Plays rows and returns their verified rollouts in completion order, and what a collection says about its rows."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from ludus_nemo_gym.agent_servers import find_running
from ludus_nemo_gym.collecting import RemoteCollection, read_rollouts
from ludus_nemo_gym.collecting import max_rollout_attempts as get_max_rollout_attempts
from ludus_nemo_gym.head import head_url
from pydantic import BaseModel, ConfigDict, Field

from ludus.errors import UserError
from nemo_gym._environment_routes import (
    environment_server_for_agent,
    environment_servers_by_agent,
    episode_record,
)
from nemo_gym._errors import RolloutError
from nemo_gym._failed_rows import (
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
    NG_TERMINAL_KEY,
    DispatchLatencyTracker,
    is_terminal_failure,
    migrate_invalid_judge_main_rows,
    observed_elapsed,
)
from nemo_gym._hooked_collection import collect_with_hooks, play_by_name
from nemo_gym._results import Row
from nemo_gym._servers import Played, play, servers_at
from nemo_gym._trajectories import PERF, TRAJECTORY, build_trajectory, performance, trajectory_identity
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME, get_global_config_dict
from nemo_gym.rollout_observability import TrajectoryRecord
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig, ServerClient, setup_server_client

__all__ = [
    "NG_FAILURE_CLASS_KEY",
    "NG_NO_PERSIST_KEY",
    "NG_TERMINAL_KEY",
    "DispatchLatencyTracker",
    "RolloutCollectionConfig",
    "RolloutCollectionHelper",
    "get_max_rollout_attempts",
    "is_terminal_failure",
    "migrate_invalid_judge_main_rows",
    "observed_elapsed",
]

#: A row of a collection has one of these.
_ROW_KEYS = {"responses_create_params", "agent_ref", "task_id", "_ng_task_index", "_ng_rollout_id"}

#: The older name.
_get_max_rollout_attempts = get_max_rollout_attempts


class RolloutCollectionConfig(BaseModel):
    """The options of a collection, as `gym eval run` takes them. Other keys are kept."""

    model_config = ConfigDict(extra="allow")

    input_jsonl_fpath: str | None = None
    output_jsonl_fpath: str | None = None
    agent_name: str | None = None
    limit: int | None = None
    num_repeats: int | dict[str, int] | None = None
    num_repeats_add_seed: bool = False
    num_samples_in_parallel: int | None = None
    responses_create_params: dict[str, Any] = Field(default_factory=dict)
    prompt_config: str | None = None
    skills: dict[str, Any] | None = None
    resume_from_cache: bool = False
    disable_aggregation: bool = False
    upload_rollouts: bool = False
    environment_routing_mode: Literal["agent", "legacy", "taskset"] = "agent"
    environment_server_name: str | None = None
    environment_server_routes: dict[str, str] = Field(default_factory=dict)


class RolloutCollectionHelper:
    """Plays rows with the agents behind a head server.

    for finished in RolloutCollectionHelper().run_examples(rows, head_server_config):
        row, result = await finished

    A subclass may override two hooks: `setup_server_client`, whose client then sends every row, and `run_examples`,
    which then plays the rows of `run_from_config`.
    """

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the servers of a head that runs."""
        return setup_server_client(head_server_config)

    def run_examples(
        self,
        examples: Sequence[Row],
        head_server_config: BaseServerConfig | None = None,
        semaphore: AbstractAsyncContextManager[Any] | None = None,
    ) -> Iterator[Awaitable[Played]]:
        """Awaitables in completion order, each of the given row and its result.

        Awaiting a failed rollout raises and does not affect the others. Agents that `RunHelper` started in this process
        are called directly. Agents of another process are found through the head and called over HTTP. `semaphore`
        limits the rollouts in flight.
        """
        start = self._player(head_server_config)

        async def play_one(row: Row) -> Played:
            async with semaphore or contextlib.nullcontext():
                return await start(row)

        played = [asyncio.ensure_future(play_one(row)) for row in examples]
        for result in played:
            result.add_done_callback(_retrieve_exception)
        return asyncio.as_completed(played)

    async def run_from_config(
        self, config: RolloutCollectionConfig, head_server_config: BaseServerConfig | None = None
    ) -> list[Row]:
        """Collect the rows of a file from running agents, write the files of `gym eval run`, and return the rollouts.

        Failed rollouts are in the file of failures only.
        """
        from ludus_nemo_gym.eval_commands import collect_options

        options = collect_options(config.model_dump(exclude_none=True), str(config.input_jsonl_fpath))
        if self._is_replaced("run_examples") or self._is_replaced("setup_server_client"):
            tree = get_global_config_dict()
            observe = _attach_trajectory_record if tree.get(OBSERVABILITY_ENABLED_KEY_NAME) else _unobserved
            semaphore = asyncio.Semaphore(options.concurrency)
            play = functools.partial(self.run_examples, head_server_config=head_server_config, semaphore=semaphore)
            return await collect_with_hooks(options, play, observe)
        running = await find_running(_head_url(head_server_config))
        collection = RemoteCollection(options, running)
        try:
            collector = collection.prepare()
            if collector is not None and collection.collection is not None:
                await collection.collection.run(collector)
                collection.replace()
            if options.aggregate:
                await collection.write_metrics()
        finally:
            collection.close()
        return list(read_rollouts(collection.files.rollouts))

    def _player(self, head_server_config: BaseServerConfig | None) -> Callable[[Row], Awaitable[Played]]:
        """What plays one row."""
        if self._is_replaced("setup_server_client"):
            return functools.partial(play_by_name, self.setup_server_client(head_server_config))
        servers = servers_at(head_server_config.port if head_server_config is not None else None)
        if servers is not None:
            return lambda row: asyncio.wrap_future(servers.play(row))
        return _RemoteHead(head_server_config).play

    def _is_replaced(self, hook: str) -> bool:
        """Whether a subclass or a test has put its own function in place of a hook."""
        return getattr(getattr(self, hook), "__func__", None) is not _HOOKS[hook]


_HOOKS = {name: vars(RolloutCollectionHelper)[name] for name in ("run_examples", "setup_server_client")}


def _unobserved(row: Row, result: Row) -> None:
    """Add nothing to a result."""


def _retrieve_exception(played: asyncio.Future[Played]) -> None:
    """Mark an exception as retrieved, so that asyncio does not log it if the caller stops at an earlier failure."""
    if not played.cancelled():
        played.exception()


def _head_url(config: BaseServerConfig | None) -> str:
    named = {"host": config.host, "port": config.port} if config is not None else {}
    return head_url({HEAD_SERVER_KEY_NAME: named})


class _RemoteHead:
    """A head in another process. Its list of agents is read once."""

    def __init__(self, config: BaseServerConfig | None) -> None:
        self._url = _head_url(config)
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


def _environment_servers_by_agent(global_config_dict: Any = None) -> dict[str, list[str]]:
    """The environment servers in front of each agent. Without an argument, those of the process's configuration."""
    return environment_servers_by_agent(
        global_config_dict if global_config_dict is not None else get_global_config_dict()
    )


def _environment_server_for_agent(agent_name: Any, servers: Any = None) -> str:
    """The environment server in front of an agent, by a configuration or by its servers; in either order."""
    if not isinstance(agent_name, str):
        agent_name, servers = servers, agent_name
    is_index = isinstance(servers, Mapping) and all(isinstance(names, (list, tuple, set)) for names in servers.values())
    by_agent = servers if is_index and servers else _environment_servers_by_agent(servers)
    return environment_server_for_agent(by_agent, agent_name)


def _episode_record(*bodies: Any, **named: Any) -> dict[str, Any]:
    """The record of an environment server's answer: the argument that has an end, or else the last one."""
    values = [
        body.model_dump(mode="json") if isinstance(body, BaseModel) else body for body in (*bodies, *named.values())
    ]
    ended = (value for value in values if isinstance(value, dict) and value.keys() & {"result", "failure"})
    return episode_record(next(ended, values[-1]))


def _trajectory_identity(row: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> tuple[Any, str | None]:
    """The ids of a rollout's task and of the rollout."""
    return trajectory_identity(row, result)


def _build_trajectory_record(*rows: Any, **named: Any) -> TrajectoryRecord:
    """The trajectory of a result; see `_row_and_result` for the arguments."""
    return build_trajectory(*_row_and_result(*rows, *named.values()))


def _attach_trajectory_record(*rows: Any, **named: Any) -> dict[str, Any]:
    """Add `ng_trajectory` and `ng_perf` to a result, and return it; see `_row_and_result` for the arguments."""
    row, result = _row_and_result(*rows, *named.values())
    trajectory = build_trajectory(row, result)
    result[TRAJECTORY] = trajectory.model_dump(mode="json")
    result[PERF] = performance(trajectory, result)
    return result


def _row_and_result(*rows: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row and its result, in whichever order they are passed. A record that holds the fields of its row is both.

    Only a result has a reward or a response. It may be a model. Other arguments change nothing.
    """
    mappings: list[Any] = [row.model_dump() if isinstance(row, BaseModel) else row for row in rows]
    mappings = [row for row in mappings if isinstance(row, dict)]
    if not mappings:
        raise TypeError("a trajectory needs the result of a rollout, as a dictionary or a model")
    result = next((row for row in mappings if "response" in row or "reward" in row), mappings[-1])
    return next((row for row in mappings if row is not result and _ROW_KEYS & row.keys()), result), result
