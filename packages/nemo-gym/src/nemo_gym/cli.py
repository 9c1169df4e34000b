"""Starting and stopping the servers of a configuration, as trainers do it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import Launch, RemotePart
from ludus_nemo_gym.names import AGENTS
from ludus_nemo_gym.starting import plan_of
from ludus_nemo_gym.wiring import wire

from ludus.errors import UserError
from ludus.runtime.keys import secret
from ludus.runtime.running import make_room_for
from ludus.serve.plan import LOOPBACK, Plan
from ludus.serve.site import check
from nemo_gym._servers import AT_ONCE, Servers

log = logging.getLogger("nemo_gym")


@dataclass
class GlobalConfigDictParserConfig:
    """Where the configuration comes from: a dictionary (OmegaConf's or a plain one), a file of one's own, and, unless
    it is skipped, the command line.
    """

    dotenv_path: Path | str | None = None
    initial_global_config_dict: Any = None
    skip_load_from_cli: bool = False


class RunHelper:
    """The servers of one configuration, in this process.

    Beyond loopback our servers demand a token. Where `LUDUS_TOKEN` holds none, one is made up for the time of the run:
    rollouts of this process need no more, and nobody else can start any.
    """

    def __init__(self) -> None:
        self._servers: Servers | None = None
        self._before: dict[str, str | None] = {}

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig) -> None:
        """Start everything and return when it is ready. With `dry_run` the configuration is only checked."""
        given = global_config_dict_parser_config
        launch = wire(
            read_config(
                [] if given.skip_load_from_cli else sys.argv[1:],
                initial=given.initial_global_config_dict,
                env_file=Path(given.dotenv_path) if given.dotenv_path is not None else None,
            )
        )
        plan = plan_of(launch)
        for note in launch.notes:
            log.warning("%s", note)
        try:
            self._put(launch.secrets)
            if launch.dry_run:
                check(plan)
                self._put_back()
            else:
                self._begin(plan, launch)
        except BaseException:
            self._put_back()
            raise

    def poll(self) -> None:
        """Raise if anything has died."""
        if self._servers is not None:
            self._servers.poll()

    def shutdown(self) -> None:
        """End every rollout and every server. A second time it does nothing."""
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.stop()
        self._put_back()

    def _begin(self, plan: Plan, launch: Launch) -> None:
        if _is_open_to_others(plan) and not secret(plan.token_env):
            self._put({plan.token_env: secrets.token_urlsafe(32)})
        with contextlib.suppress(UserError):  # fewer open files will do for fewer rollouts
            make_room_for(AT_ONCE)
        elsewhere = {
            each.name: each.part.url
            for each in launch.servers
            if each.kind == AGENTS and isinstance(each.part, RemotePart)
        }
        servers = Servers(plan, elsewhere)
        servers.start()
        self._servers = servers

    def _put(self, variables: Mapping[str, str]) -> None:
        """Set variables of the environment for as long as the servers run."""
        for name, value in variables.items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def _put_back(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()


def _is_open_to_others(plan: Plan) -> bool:
    return not {plan.host, *(server.host for server in plan.servers)} <= set(LOOPBACK)
