"""The launch of a configuration."""

from __future__ import annotations

from typing import Any

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import Instance, Launch
from ludus_nemo_gym.wiring import wire

MCQA = "resources_servers/mcqa/configs/mcqa.yaml"
KEY = "sk-0123456789"
POLICY = ["+policy_base_url=http://127.0.0.1:1/v1", f"+policy_api_key={KEY}", "+policy_model_name=m"]
OPENAI = "responses_api_models/openai_model/configs/openai_model.yaml"


def launched(*arguments: str, tree: dict[str, Any] | None = None) -> Launch:
    """What arguments and a tree start."""
    return wire(read_config(arguments, initial=tree))


def instance(launch: Launch, name: str) -> Instance:
    """An instance of a launch, by its name."""
    return next(each for each in launch.servers if each.name == name)


def foreign(kind: str = "resources_servers", **fields: Any) -> dict[str, Any]:
    """A server that is not Ludus's code."""
    return {"theirs": {kind: {"sudoku_xl": {"entrypoint": "app.py", **fields}}}}
