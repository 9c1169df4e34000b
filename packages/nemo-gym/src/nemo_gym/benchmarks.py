"""A benchmark: a configuration file with an agent that has a dataset of the type `benchmark`."""

from __future__ import annotations

from pathlib import Path

from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.names import AGENTS
from pydantic import BaseModel, ConfigDict

from nemo_gym.config_types import DatasetConfig


class BenchmarkConfig(BaseModel):
    """What a benchmark is called, where its file is, who plays it, and its dataset."""

    model_config = ConfigDict(extra="allow")

    name: str
    path: Path
    agent_name: str
    num_repeats: int = 1
    dataset: DatasetConfig

    @classmethod
    def from_config_path(cls, config_path: str | Path) -> BenchmarkConfig | None:
        """The benchmark of a configuration file; None if the file has no dataset of that type."""
        path = Path(config_path)
        for server in read_config([f"+config_paths=[{path}]"], check=False).servers:
            for entry in (server.block.get("datasets") or ()) if server.kind == AGENTS else ():
                if isinstance(entry, dict) and entry.get("type") == "benchmark":
                    dataset = DatasetConfig.model_validate(entry)
                    repeats = dataset.num_repeats
                    return cls(
                        name=dataset.name, path=path, agent_name=server.name, num_repeats=repeats, dataset=dataset
                    )
        return None
