"""The configuration: where it comes from, and what it is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.names import HEAD_SERVER
from omegaconf import DictConfig, OmegaConf

#: The head server's key in the configuration that a trainer passes.
HEAD_SERVER_KEY_NAME = HEAD_SERVER


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

    Arguments of the command line that are no overrides, such as those of your own program, are ignored.
    """
    options = global_config_dict_parser_config or GlobalConfigDictParserConfig()
    arguments = (
        [] if options.skip_load_from_cli else [argument for argument in sys.argv[1:] if argument.startswith("+")]
    )
    env_file = Path(options.dotenv_path) if options.dotenv_path is not None else None
    tree = read_config(arguments, initial=options.initial_global_config_dict, env_file=env_file, check=False).tree
    head = tree.get(HEAD_SERVER_KEY_NAME)
    address = {"host": tree.get("default_host") or "127.0.0.1", "port": 11000}
    return OmegaConf.create({**tree, HEAD_SERVER_KEY_NAME: {**address, **(head if isinstance(head, dict) else {})}})


def find_open_port(disallowed_ports: Collection[int] | None = None, max_retries: int = 50) -> int:
    """A port that is free now."""
    for _ in range(max_retries):
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port not in (disallowed_ports or ()):
            return port
    raise RuntimeError(f"no free port was found in {max_retries} attempts")
