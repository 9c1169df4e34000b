"""The configuration: where it comes from, and what it is."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.names import HEAD_SERVER
from omegaconf import DictConfig, OmegaConf

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


@dataclass
class GlobalConfigDictParserConfig:
    """The sources of the configuration: a dictionary (OmegaConf's or a plain one), a file in place of `env.yaml`, and
    the command line unless it is skipped.
    """

    dotenv_path: Path | str | None = None
    initial_global_config_dict: Any = None
    skip_load_from_cli: bool = False


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
) -> DictConfig:
    """The merged configuration of the command line, `env.yaml` and the given dictionary, with the head's address.

    A server's process has it in an environment variable. Arguments of the command line that are no overrides, such as
    those of your own program, are ignored.
    """
    if global_config_dict_parser_config is None and (own := maybe_get_global_config_dict()) is not None:
        return own
    options = global_config_dict_parser_config or GlobalConfigDictParserConfig()
    arguments = (
        [] if options.skip_load_from_cli else [argument for argument in sys.argv[1:] if argument.startswith("+")]
    )
    env_file = Path(options.dotenv_path) if options.dotenv_path is not None else None
    tree = read_config(arguments, initial=options.initial_global_config_dict, env_file=env_file, check=False).tree
    head = tree.get(HEAD_SERVER_KEY_NAME)
    address = {"host": tree.get("default_host") or "127.0.0.1", "port": 11000}
    return OmegaConf.create({**tree, HEAD_SERVER_KEY_NAME: {**address, **(head if isinstance(head, dict) else {})}})


def maybe_get_global_config_dict() -> DictConfig | None:
    """The configuration of this server's process; None in any other process."""
    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    return _parsed(text) if text is not None else None


@lru_cache(maxsize=4)
def _parsed(text: str) -> DictConfig:
    return OmegaConf.create(text)  # type: ignore[return-value]


def get_first_server_config_dict(global_config_dict: Any, top_level_path: str) -> Any:
    """The settings of a server: `{host, port, ...}` in `NAME: {TYPE: {IMPLEMENTATION: {host, port, ...}}}`."""
    kinds = global_config_dict[top_level_path]
    implementations = kinds[next(iter(kinds))]
    return implementations[next(iter(implementations))]


def get_hf_token() -> str | None:
    """The token of Hugging Face in the configuration."""
    token = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return str(token) if token else None


def find_open_port(disallowed_ports: Collection[int] | None = None, max_retries: int = 50) -> int:
    """A port that is free now."""
    for _ in range(max_retries):
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port not in (disallowed_ports or ()):
            return port
    raise RuntimeError(f"no free port was found in {max_retries} attempts")
