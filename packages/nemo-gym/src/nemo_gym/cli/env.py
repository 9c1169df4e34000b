"""Starts and stops the servers of a configuration, with the names that trainers call."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import Launch, RemotePart
from ludus_nemo_gym.names import AGENTS
from ludus_nemo_gym.starting import plan_of
from ludus_nemo_gym.wiring import wire

from ludus.errors import UserError
from ludus.http.guard import LOOPBACK
from ludus.runtime.keys import look_up_key
from ludus.runtime.running import allow_open_files
from ludus.serve.plan import Plan
from ludus.serve.site import check
from nemo_gym._servers import CONCURRENCY, ServersOnThread
from nemo_gym.global_config import GlobalConfigDictParserConfig

log = logging.getLogger("nemo_gym")


class RunHelper:
    """The servers of one configuration, in this process.

    Ludus's servers demand a token from clients beyond loopback. If `LUDUS_TOKEN` is empty, `start` generates a token
    for this run. Rollouts of this process use it; no other process knows it.
    """

    def __init__(self) -> None:
        self._servers: ServersOnThread | None = None
        self._variables_before: dict[str, str | None] = {}

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig) -> None:
        """Start all servers and return when they are ready. With `dry_run`, only check the configuration."""
        options = global_config_dict_parser_config
        launch = wire(
            read_config(
                [] if options.skip_load_from_cli else sys.argv[1:],
                initial=options.initial_global_config_dict,
                env_file=Path(options.dotenv_path) if options.dotenv_path is not None else None,
            )
        )
        plan = plan_of(launch)
        for note in launch.notes:
            log.warning("%s", note)
        try:
            self._set_variables(launch.secrets)
            if launch.dry_run:
                check(plan)
                self._restore_variables()
            else:
                self._start_servers(plan, launch)
        except BaseException:
            self._restore_variables()
            raise

    def poll(self) -> None:
        """Raise if the servers have stopped."""
        if self._servers is not None:
            self._servers.poll()

    def shutdown(self) -> None:
        """Cancel every rollout and stop every server. A second call does nothing."""
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.stop()
        self._restore_variables()

    def _start_servers(self, plan: Plan, launch: Launch) -> None:
        if _listens_beyond_loopback(plan) and not look_up_key(plan.token_env):
            self._set_variables({plan.token_env: secrets.token_urlsafe(32)})
        with contextlib.suppress(UserError):  # a lower limit of open files is enough for fewer rollouts
            allow_open_files(CONCURRENCY)
        remote_agents = {
            instance.name: instance.part.url
            for instance in launch.servers
            if instance.kind == AGENTS and isinstance(instance.part, RemotePart)
        }
        servers = ServersOnThread(plan, remote_agents)
        servers.start()
        self._servers = servers

    def _set_variables(self, variables: Mapping[str, str]) -> None:
        """Set environment variables until the servers stop."""
        for name, value in variables.items():
            self._variables_before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def _restore_variables(self) -> None:
        for name, value in self._variables_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._variables_before.clear()


def _listens_beyond_loopback(plan: Plan) -> bool:
    return not {plan.host, *(server.host for server in plan.servers)} <= set(LOOPBACK)
