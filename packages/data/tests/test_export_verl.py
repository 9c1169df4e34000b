"""The Parquet file of `--to verl` is read by verl's own RLHFDataset. Skipped where verl is not installed."""

from __future__ import annotations

import json

import pytest
from ludus_data.export.exporting import export
from rollout_files import rollout, with_tools, write

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", reason="needs verl", exc_type=ImportError)


def test_verls_dataset_reads_the_export(tmp_path):
    from omegaconf import OmegaConf
    from tiny_transformers import tokenizer

    run = write(tmp_path / "rollouts.jsonl", [rollout("plain", 0, 1.0), with_tools("tools", 0, 1.0)])
    export(run, "verl", tmp_path / "train.parquet")
    settings = {"max_prompt_length": 512, "filter_overlong_prompts": True, "cache_dir": str(tmp_path / "cache")}
    settings["filter_overlong_prompts_workers"] = None
    data = rl_dataset.RLHFDataset(str(tmp_path / "train.parquet"), tokenizer("tools"), OmegaConf.create(settings))
    items = [data[number] for number in range(len(data))]
    assert [json.loads(item["extra_info"]["task"])["task_id"] for item in items] == ["plain", "tools"]
    assert all(item["raw_prompt"][-1]["role"] == "user" for item in items)
    assert all(isinstance(item["reward_model"]["ground_truth"], str) for item in items)
