"""Offline training: SFT on filtered rollouts, then DPO on pairs of rollouts, both as `ludus data export` writes them.

On a CPU, in half a minute, with the micro model; on a GPU, in a minute, with SmolLM2-135M:

    python examples/train_grpo/offline.py --output runs/offline
    python examples/train_grpo/offline.py --model smollm2 --environment sort_numbers --rounds 1 --sft-rate 2e-5 \\
        --dpo-rate 1e-5 --seconds 60 --output runs/offline

Each round plays the training tasks `--group-size` times at temperature 1, keeps the rollouts that reach the reward of
the best few percent (`--best`), and trains on them with TRL's SFTTrainer. Then the trained model plays once more, and
DPOTrainer learns to prefer the best answer to a task to the worst. After every stage the same held-out tasks are
played, greedily; none of them is trained on. metrics.json is written after every stage. The rollouts and the exported
files are kept in the output folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from budget import Budget, elapsed, stop_at  # isort: skip  (first: it takes the time from here)

import argparse
import copy
import json
import math
import os
import time
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from environments import ENVIRONMENTS
from ludus_data.export.format import Choices
from ludus_data.export.pairs import PairRule
from ludus_data.filters import Filters
from policy import Player, Row, dataset, load_model, options_of, run_trainer, trainer_settings, write_json

import ludus
from ludus.errors import UserError


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options. The defaults suit the micro model."""
    parser = argparse.ArgumentParser(description="SFT on filtered rollouts, then DPO on pairs, with held-out results.")
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="find_digit")
    parser.add_argument("--model", default="micro", help="micro, smollm2, a GGUF file or a folder of transformers")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of collecting, filtering and SFT")
    parser.add_argument("--train-tasks", type=int, default=60)
    parser.add_argument("--held-out", type=int, default=20, help="tasks that are never trained on")
    parser.add_argument("--group-size", type=int, default=48, help="rollouts of each training task")
    parser.add_argument("--best", type=float, default=0.02, help="SFT takes the reward that this share reach")
    parser.add_argument("--sft-steps", type=int, default=12)
    parser.add_argument("--dpo-steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="rows of one training step")
    parser.add_argument("--sft-rate", type=float, default=2e-3, help="learning rate of SFT")
    parser.add_argument("--dpo-rate", type=float, default=5e-4, help="learning rate of DPO")
    parser.add_argument("--max-batch", type=int, default=256, help="requests in one batch of generation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="the most that the program may take, loading included")
    parser.add_argument("--output", type=Path, default=Path("runs/offline"))
    return parser.parse_args(arguments)


class Offline:
    """One run: its weights, its stages and its files."""

    def __init__(self, options: argparse.Namespace) -> None:
        rounds = [(f"{kind} {n + 1}", weight) for n in range(options.rounds) for kind, weight in _STAGES]
        self.options = options
        self.budget = Budget(options.seconds, [("start", 1), *rounds, ("rollouts", 3), ("dpo", 3), ("end", 1)])
        environment, make_rows, settings = ENVIRONMENTS[options.environment]
        rows = make_rows(options.train_tasks + options.held_out, options.seed)
        self.train_rows, self.held_out = rows[: -options.held_out], rows[-options.held_out :]
        self.weights, self.tokenizer = load_model(options.model, options.seed)
        self.player = Player(environment, self.tokenizer, settings, options.max_batch, options.seed)
        self.evaluations: list[Row] = []
        self.stages: list[Row] = []

    def run(self) -> Row:
        """All stages."""
        self.budget.stage("start")
        self.evaluate("start")
        for number in range(1, self.options.rounds + 1):
            runs = self.collect(f"rollouts {number}", number)
            self.sft(f"sft {number}", runs)
            self.budget.stage(f"held-out {number}")
            self.evaluate(f"sft {number}")
        self.dpo("dpo", self.collect("rollouts", self.options.rounds + 1))
        self.budget.stage("end")
        self.evaluate("dpo")
        return self.result()

    def evaluate(self, stage: str) -> None:
        """Play the held-out tasks, and write the metrics so far."""
        start = self.evaluations[0] if self.evaluations else None
        measured = self.player.measure(self.weights, self.held_out, stage, start)
        self.evaluations.append(measured | {"at_second": round(elapsed(), 1)})
        gain = f", gain {measured['gain']:+.3f} {_shown(measured['gain_interval'])}" if start else ""
        reward = f"held-out reward {measured['reward']:.3f} {_shown(measured['interval'])}"
        print(f"{elapsed():5.1f} s  {stage}: {reward}, exact {measured['exact']:.0%}{gain}", flush=True)
        write_json(self.options.output / "metrics.json", self.result())

    def collect(self, stage: str, number: int) -> list[Path]:
        """Play the training tasks in parts, until all are played or the time of the stage is over."""
        options, deadline = self.options, self.budget.stage(stage)
        size = max(1, 2 * options.max_batch // options.group_size)
        runs: list[Path] = []
        for start in range(0, len(self.train_rows), size):
            runs.append(options.output / f"rollouts-{number}-{len(runs) + 1}")
            rows, version = self.train_rows[start : start + size], self.evaluations[-1]["stage"]
            repeats = options.group_size
            self.player.play(self.weights, rows, version=version, temperature=1.0, repeats=repeats, output=runs[-1])
            if elapsed() >= deadline:
                break
        return runs

    def sft(self, stage: str, runs: list[Path]) -> None:
        """Train on the best rollouts: those with at least the reward that the share `--best` of them reach."""
        from trl import SFTConfig, SFTTrainer

        deadline = self.budget.stage(stage)
        played = [rollout.reward for run in runs for rollout in ludus.load(run)]
        rewards = sorted((reward for reward in played if reward is not None), reverse=True)
        better = [reward for reward in rewards if reward > rewards[-1]]  # equal rewards say nothing
        least = max(rewards[int(self.options.best * len(rewards))], min(better, default=math.inf))
        filters, choices = Filters(reward=(least, None)), Choices(shape="completion")
        rows, exported = self.export("sft", stage, runs, filters=filters, choices=choices)
        trainer = SFTTrainer(
            self.weights,
            args=SFTConfig(**self.settings("sft"), max_steps=self.options.sft_steps),
            train_dataset=dataset(rows, "prompt", "completion"),
            processing_class=self.tokenizer,
            callbacks=[stop_at(deadline)],
        )
        self.finish(stage, exported | {"min_reward": least}, run_trainer(trainer, "loss"))

    def dpo(self, stage: str, runs: list[Path]) -> None:
        """Train on the best against the worst rollout of each task. The reference is the model as it is now."""
        from trl import DPOConfig, DPOTrainer

        deadline = self.budget.stage(stage)
        rows, exported = self.export("dpo", stage, runs, pairs=PairRule(margin=0.1))
        trainer = DPOTrainer(
            self.weights,
            ref_model=copy.deepcopy(self.weights),
            args=DPOConfig(**self.settings("dpo"), max_steps=self.options.dpo_steps),
            train_dataset=dataset(rows, "prompt", "chosen", "rejected"),
            processing_class=self.tokenizer,
            callbacks=[stop_at(deadline)],
        )
        self.finish(stage, exported, run_trainer(trainer, "loss"))

    def export(self, to: str, stage: str, runs: list[Path], **choice: Any) -> tuple[list[Row], Row]:
        """The rows of a training set, and how many rollouts they come from: `rollouts` = `used` + `left_out`."""
        rows: list[Row] = []
        counts = {"rollouts": 0, "used": 0, "rows": 0}
        left_out: dict[str, int] = {}
        for number, run in enumerate(runs, 1):
            path = self.options.output / f"{stage.replace(' ', '-')}-{number}.jsonl"
            made = ludus.load(run).export(to, path, overwrite=True, **choice)
            rows += map(json.loads, path.read_text().splitlines())
            counts = {name: count + getattr(made, name) for name, count in counts.items()}
            for reason, count in made.left_out.items():
                left_out[reason] = left_out.get(reason, 0) + count
        if not rows:
            raise UserError(f"{stage}: no rollout is better than another", "Raise --group-size or --train-tasks")
        return rows, {**counts, "left_out": left_out}

    def settings(self, kind: str) -> Row:
        """The settings of a trainer."""
        options = self.options
        rate = options.sft_rate if kind == "sft" else options.dpo_rate
        common = trainer_settings(self.weights, options.output, options.seed, rate)
        return common | {"per_device_train_batch_size": options.batch, "max_length": 256}

    def finish(self, stage: str, exported: Row, steps: list[Row]) -> None:
        """Keep the numbers of a stage of training."""
        self.stages.append({"stage": stage, "at_second": round(elapsed(), 1), "exported": exported, "steps": steps})
        counts = f"{exported['used']} of {exported['rollouts']} rollouts, {exported['rows']} rows, {len(steps)} steps"
        print(f"{elapsed():5.1f} s  {stage}: {counts}, loss {steps[0]['loss']:.3f} -> {steps[-1]['loss']:.3f}")

    def result(self) -> Row:
        """What metrics.json holds."""
        times = {"seconds": round(elapsed(), 1), "cpu_seconds": round(time.process_time(), 1)}
        head = {"options": options_of(self.options), "device": self.weights.device.type, **times}
        return {**head, "evaluations": self.evaluations, "stages": self.stages}


#: The stages of a round and the weights of their times.
_STAGES = (("rollouts", 3.0), ("sft", 2.0), ("held-out", 1.0))


def _shown(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def main(arguments: list[str] | None = None) -> Row:
    """Run, and say where the metrics are."""
    options = parse(arguments)
    result = Offline(options).run()
    print(f"wrote {options.output / 'metrics.json'} after {result['seconds']} s")
    return result


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
