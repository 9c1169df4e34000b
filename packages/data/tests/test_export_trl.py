"""Exports train: TRL's own trainers take two steps on a tiny model with the files as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lazily
import pytest
from ludus_data.export.exporting import export
from ludus_data.export.format import Choices
from rollout_files import rollout, with_tokens, with_tools, write

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

trl = lazily.imported("trl", "pip install 'ludus-transformers[train]'")
datasets = lazily.imported("datasets", "pip install 'ludus-transformers[train]'")

#: TRL computes in bfloat16 by default, which a CPU emulates at a twentieth of the speed.
FAST = {"bf16": False, "gradient_checkpointing": False}
TINY = {"num_hidden_layers": 1, "hidden_size": 16, "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    """Four tasks with tools and four without, each with a good and a bad rollout."""
    rollouts = [with_tools(f"tools{task}", repeat, float(repeat)) for task in range(4) for repeat in range(2)]
    rollouts += [rollout(f"plain{task}", repeat, float(repeat)) for task in range(4) for repeat in range(2)]
    rollouts += [with_tokens(f"ids{task}") for task in range(4)]
    return write(tmp_path_factory.mktemp("run") / "rollouts.jsonl", rollouts)


def steps(run: Path, tmp_path: Path, to: str, trainer: str, choices: Choices | None = None, **settings: Any) -> Any:
    """Train for two steps on an export; the loss of each step."""
    from tiny_transformers import llama, tokenizer

    target = tmp_path / "train.jsonl"
    export(run, to, target, choices=choices or Choices())
    data = datasets.load_dataset("json", data_files=str(target), split="train", cache_dir=str(tmp_path / "cache"))
    words = tokenizer("tools")
    words.pad_token = words.eos_token
    shared = {"per_device_train_batch_size": 2, "max_steps": 2, "logging_steps": 1, "report_to": "none", **FAST}
    config = getattr(trl, trainer.replace("Trainer", "Config"))(
        output_dir=str(tmp_path / "out"), use_cpu=True, save_strategy="no", disable_tqdm=True, **shared, **settings
    )
    weights = llama(**TINY)
    before = weights.model.embed_tokens.weight.detach().clone()
    more = {"ref_model": llama(**TINY)} if trainer in ("DPOTrainer", "KTOTrainer") else {}
    trained = getattr(trl, trainer)(model=weights, args=config, train_dataset=data, processing_class=words, **more)
    trained.train()
    losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
    assert (weights.model.embed_tokens.weight - before).abs().max() > 0
    return trained, losses


def test_sft_trains_on_messages_with_tools(run, tmp_path):
    _, losses = steps(run, tmp_path, "sft", "SFTTrainer", learning_rate=1e-3)
    assert len(losses) == 2
    assert all(loss > 0 for loss in losses)


def test_sft_trains_on_recorded_tokens_with_their_loss_mask(run, tmp_path):
    trained, losses = steps(run, tmp_path, "sft", "SFTTrainer", Choices(tokens=True), learning_rate=1e-3)
    assert len(losses) == 2
    batch = next(iter(trained.get_train_dataloader()))
    assert batch["input_ids"][0].tolist() == [5, 6, 7, 8, 9, 10, 11, 12]
    assert batch["labels"][0].tolist() == [-100, -100, -100, 8, 9, -100, -100, 12]


def test_dpo_trains_on_pairs(run, tmp_path):
    _, losses = steps(run, tmp_path, "dpo", "DPOTrainer", learning_rate=1e-3)
    assert len(losses) == 2
    assert all(loss > 0 for loss in losses)


def test_kto_trains_on_labels(run, tmp_path):
    _, losses = steps(run, tmp_path, "kto", "KTOTrainer", learning_rate=1e-3)
    assert len(losses) == 2
    assert all(loss > 0 for loss in losses)
