"""The configuration: where it comes from, and what it is."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import DEFAULT_HOST, HEAD_PORT
from ludus_nemo_gym.names import HEAD_SERVER
from ludus_nemo_gym.servers import environment_servers, find_servers
from ludus_nemo_gym.trees import plain
from omegaconf import DictConfig, OmegaConf

from nemo_gym import CACHE_DIR, RESULTS_DIR
from nemo_gym._config_rules import check_pairings, with_relays

#: The head server's key in the configuration that a trainer passes.
HEAD_SERVER_KEY_NAME = HEAD_SERVER

#: The environment variables of a server's process: the whole configuration, and the name of the server's instance.
NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME = "NEMO_GYM_CONFIG_PATH"

#: Keys of rows and of results.
TASK_INDEX_KEY_NAME = "_ng_task_index"
ROLLOUT_INDEX_KEY_NAME = "_ng_rollout_index"
ATTEMPT_INDEX_KEY_NAME = "_ng_attempt_index"
ROLLOUT_ID_KEY_NAME = "_ng_rollout_id"
AGENT_REF_KEY_NAME = "agent_ref"
SKILLS_REF_KEY_NAME = "skills_ref"
TASK_SOURCE_KEY_NAME = "task_source"

#: Keys of the configuration.
HF_TOKEN_KEY_NAME = "hf_token"
CACHE_DIR_KEY_NAME = "cache_dir"
RESULTS_DIR_KEY_NAME = "results_dir"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
OBSERVABILITY_ENABLED_KEY_NAME = "observability_enabled"
TOKEN_ID_CAPTURE_BLOCK = "token_id_capture"
POLICY_BASE_URL_KEY_NAME = "policy_base_url"
POLICY_API_KEY_KEY_NAME = "policy_api_key"
POLICY_MODEL_NAME_KEY_NAME = "policy_model_name"

_MOST_PROBES = 50
_configuration: ContextVar[DictConfig | None] = ContextVar("nemo_gym_configuration", default=None)
#: The configuration that this process was given by `get_global_config_dict`.
_given: list[DictConfig] = []


@dataclass
class GlobalConfigDictParserConfig:
    """The sources of the configuration: a dictionary (OmegaConf's or a plain one), a file in place of `env.yaml`, and
    the command line. The last two can be skipped.
    """

    #: A dictionary for commands that call no model: it gives the policy's settings values.
    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = OmegaConf.create(
        {POLICY_BASE_URL_KEY_NAME: "", POLICY_API_KEY_KEY_NAME: "", POLICY_MODEL_NAME_KEY_NAME: ""}
    )

    dotenv_path: Path | str | None = None
    initial_global_config_dict: Any = None
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False


class GlobalConfigDictParser:
    """Parses a configuration and gives every server an address."""

    def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """The merged configuration.

        A server without `host` or `port` gets `default_host` and a free port, and an agent without an environment
        server gets a relay. Raises an error of `nemo_gym.config_types` for servers that do not work together.
        """
        tree = plain(_read(parse_config or GlobalConfigDictParserConfig()))
        check_pairings(tree)
        config = OmegaConf.create(with_relays(tree))
        taken = set(config.get(DISALLOWED_PORTS_KEY_NAME) or ())
        low, high = _port_range(config)
        for name in _server_names(config):
            block = get_first_server_config_dict(config, name)
            if block.get("host") is None:
                block["host"] = config.get("default_host") or DEFAULT_HOST
            if block.get("port") is None:
                block["port"] = _find_open_port(taken, low, high, _MOST_PROBES)
                taken.add(block["port"])
        return config

    def parse_no_environment(self, initial_global_config_dict: Any = None) -> DictConfig:
        """The configuration of a dictionary alone: without command line and without `env.yaml`."""
        return self.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=initial_global_config_dict,
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
) -> DictConfig:
    """The merged configuration of the command line, `env.yaml` and the given dictionary, with the head's address.

    A server's process has it in an environment variable. One that was read with an argument is the process's from then
    on. Arguments of the command line that are no overrides, such as those of your own program, are ignored.
    """
    if global_config_dict_parser_config is not None:
        _given[:] = [_read(global_config_dict_parser_config)]
        return _given[0]
    own = maybe_get_global_config_dict()
    return own if own is not None else _read(GlobalConfigDictParserConfig())


def _read(options: GlobalConfigDictParserConfig) -> DictConfig:
    arguments = (
        [] if options.skip_load_from_cli else [argument for argument in sys.argv[1:] if argument.startswith("+")]
    )
    dotenv = os.devnull if options.skip_load_from_dotenv else options.dotenv_path
    env_file = Path(dotenv) if dotenv is not None else None
    tree = read_config(arguments, initial=options.initial_global_config_dict, env_file=env_file, check=False).tree
    head = tree.get(HEAD_SERVER_KEY_NAME)
    address = {"host": tree.get("default_host") or DEFAULT_HOST, "port": HEAD_PORT}
    folders = {CACHE_DIR_KEY_NAME: CACHE_DIR, RESULTS_DIR_KEY_NAME: RESULTS_DIR}
    return OmegaConf.create(
        {
            **tree,
            **{key: str(Path(tree.get(key) or folder).absolute()) for key, folder in folders.items()},
            HEAD_SERVER_KEY_NAME: {**address, **(head if isinstance(head, dict) else {})},
        }
    )


def maybe_get_global_config_dict() -> DictConfig | None:
    """The configuration of the server that runs here, or the one that this process was given; else None."""
    own = configuration_of_server()
    return own if own is not None else next(iter(_given), None)


def configuration_of_server() -> DictConfig | None:
    """The configuration of the server that runs here; None outside of servers."""
    if (own := _configuration.get()) is not None:
        return own
    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    return _parsed(text) if text is not None else None


@contextlib.contextmanager
def configuration_context(config: DictConfig) -> Iterator[None]:
    """Within the block this is the configuration: several servers of one process have one each."""
    token = _configuration.set(config)
    try:
        yield
    finally:
        _configuration.reset(token)


@lru_cache(maxsize=4)
def _parsed(text: str) -> DictConfig:
    return OmegaConf.create(text)  # type: ignore[return-value]


def get_first_server_config_dict(global_config_dict: Any, top_level_path: str) -> Any:
    """The settings of a server: `{host, port, ...}` in `NAME: {TYPE: {IMPLEMENTATION: {host, port, ...}}}`."""
    kinds = global_config_dict[top_level_path]
    implementations = kinds[next(iter(kinds))]
    return implementations[next(iter(implementations))]


def top_level_setting(global_config_dict: Any, name: str) -> Any:
    """A setting of the whole run, or None. OmegaConf's `get` searches similar names for a name that is missing."""
    return global_config_dict.get(name) if name in global_config_dict.keys() else None  # noqa: SIM118


def get_hf_token() -> str | None:
    """The token of Hugging Face in the configuration."""
    token = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return str(token) if token else None


def find_open_port(disallowed_ports: Collection[int] | None = None, max_retries: int = 50) -> int:
    """A random port of the configured range that is free now."""
    low, high = _port_range(maybe_get_global_config_dict() or {})
    return _find_open_port(disallowed_ports or (), low, high, max_retries)


def _find_open_port(disallowed: Collection[int], low: int, high: int, max_retries: int) -> int:
    for _ in range(max_retries):
        port = random.randint(low, high)
        if port in disallowed:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    hint = "widen port_range_low and port_range_high"
    raise RuntimeError(f"no free port from {low} to {high} was found in {max_retries} attempts: {hint}")


def _port_range(config: Any) -> tuple[int, int]:
    return int(config.get("port_range_low") or 10001), int(config.get("port_range_high") or 20000)


def _server_names(config: DictConfig) -> list[str]:
    """The names of all servers of a configuration."""
    tree = plain(config)
    servers, _ = find_servers(tree)
    return [server.name for server in (*servers, *environment_servers(tree))]
