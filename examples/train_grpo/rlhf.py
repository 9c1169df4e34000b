"""RLHF: a reward model learns from pairs of answers, GRPO trains the policy on its scores, and a verifier judges.

On a CPU, in half a minute, with the micro model; on a GPU, in four minutes, with SmolLM2-135M:

    python examples/train_grpo/rlhf.py --output runs/rlhf
    python examples/train_grpo/rlhf.py --model smollm2 --environment sort_numbers --warm-up 0 --learning-rate 1e-5 \\
        --reward-rate 2e-5 --train-tasks 1000 --held-out 128 --answers 24 --pairs 8 --policy-pairs 4 \\
        --reward-steps 180 --steps 100 --seconds 400 --output runs/rlhf

The pairs are written answers with more and fewer faults, and answers of the start against written ones
(`preferences.py`). The policy is trained through Ludus's contract on an environment whose rewards are the scores of the
reward model (`reward_model.py`). The judge is the environment's own verifier, which took part in neither: on held-out
tasks it compares the answers of the trained policy with those of the start. metrics.json has the win rate, and the
win rate where both answers have equal length (`judging.py`): a policy that has only learnt length wins nothing there.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from budget import Budget, elapsed, stop_at  # isort: skip  (first: it takes the time from here)

import argparse
import os
import time
from collections import defaultdict

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from environments import ENVIRONMENTS
from judging import Answer, answers_of, win_rates
from ludus_transformers.trl import TrlRollouts
from plotting import mean_interval
from policy import Player, Row, dataset, load_model, options_of, run_trainer, trainer_settings, write_json
from preferences import WRITERS, conversation, demonstrations, policy_pairs, written_pairs
from reward_model import RewardModel, scored_by

from ludus.errors import UserError

#: The start answers at most so many of the training tasks for the pairs.
_ANSWERED = 512

#: The stages and the weights of their times.
_STAGES = [("warm-up", 1.0), ("start", 1.0), ("pairs", 1.0), ("reward model", 3.0), ("grpo", 7.0), ("end", 1.0)]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options. The defaults suit the micro model."""
    parser = argparse.ArgumentParser(description="Train a reward model, then a policy on its scores, and judge it.")
    parser.add_argument("--environment", choices=WRITERS, default="find_digit")
    parser.add_argument("--model", default="micro", help="micro, smollm2, a GGUF file or a folder of transformers")
    parser.add_argument("--train-tasks", type=int, default=60)
    parser.add_argument("--held-out", type=int, default=20, help="tasks that are never trained on")
    parser.add_argument("--answers", type=int, default=4, help="sampled answers to each held-out task")
    parser.add_argument("--pairs", type=int, default=16, help="written pairs for each training task")
    parser.add_argument("--policy-pairs", type=int, default=8, help="answers of the start to each training task")
    parser.add_argument(
        "--warm-up", type=int, default=30, help="steps of SFT on the form of answers; 0 for a chat model"
    )
    parser.add_argument("--reward-steps", type=int, default=100)
    parser.add_argument("--reward-rate", type=float, default=2e-3, help="learning rate of the reward model")
    parser.add_argument("--batch", type=int, default=32, help="pairs of one step of the reward model")
    parser.add_argument("--steps", type=int, default=60, help="steps of GRPO")
    parser.add_argument("--groups", type=int, default=12, help="groups of each step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="learning rate of GRPO")
    parser.add_argument("--max-batch", type=int, default=256, help="requests in one batch of generation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="the most that the program may take, loading included")
    parser.add_argument("--output", type=Path, default=Path("runs/rlhf"))
    return parser.parse_args(arguments)


class Rlhf:
    """One run: the reward model, the policy, and the answers before and after."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.budget = Budget(options.seconds, _STAGES)
        self.environment, make_rows, settings = ENVIRONMENTS[options.environment]
        rows = make_rows(options.train_tasks + options.held_out, options.seed)
        self.train_rows, self.held_out = rows[: -options.held_out], rows[-options.held_out :]
        self.weights, self.tokenizer = load_model(options.model, options.seed)
        self.player = Player(self.environment, self.tokenizer, settings, options.max_batch, options.seed)
        self.results: Row = {"options": options_of(options), "device": self.weights.device.type}

    def run(self) -> Row:
        """All stages."""
        self.warm_up()
        self.reward_model = RewardModel(self.weights, self.tokenizer)
        self.budget.stage("start")
        start = self.answers("start")
        self.budget.stage("pairs")
        self.train_reward_model(self.pairs())
        before = self.scores(start)
        self.train_policy()
        self.budget.stage("end")
        end = self.answers("end")
        self.results["reward_model_score"] = {"start": before, "end": self.scores(end)}
        self.results["judged"] = win_rates(start, end)
        self.say("judged", "; ".join(_rate_text(kind, self.results["judged"][kind]) for kind in ("all", "equal")))
        self.write()
        return self.results

    def warm_up(self) -> None:
        """Teach a model with random weights the form of an answer, so that its answers can be compared at all."""
        options, deadline = self.options, self.budget.stage("warm-up")
        if not options.warm_up:
            return
        from trl import SFTConfig, SFTTrainer

        rows = demonstrations(WRITERS[options.environment], self.train_rows, 8, options.seed)
        settings = trainer_settings(self.weights, options.output, options.seed, options.reward_rate)
        trainer = SFTTrainer(
            self.weights,
            args=SFTConfig(**settings, max_steps=options.warm_up, per_device_train_batch_size=options.batch),
            train_dataset=dataset(rows),
            processing_class=self.tokenizer,
            callbacks=[stop_at(deadline)],
        )
        self.say("warm-up", f"{len(run_trainer(trainer, 'loss'))} steps of SFT")

    def answers(self, stage: str) -> list[Answer]:
        """Sampled answers to the held-out tasks, with the verifier's rewards, which nothing is trained on."""
        repeats = self.options.answers
        played = self.player.play(self.weights, self.held_out, version=stage, temperature=1.0, repeats=repeats)
        answers = answers_of(played.rollouts)
        reward = sum(answer.reward for answer in answers) / max(1, len(answers))
        self.say(stage, f"{len(answers)} held-out answers, verifier's reward {reward:.3f}")
        return answers

    def pairs(self) -> list[Row]:
        """Written pairs, and the answers of the start to training tasks against written ones."""
        options, write = self.options, WRITERS[self.options.environment]
        rows, repeats = self.train_rows[:_ANSWERED], options.policy_pairs
        played = self.player.play(self.weights, rows, version="start", temperature=1.0, repeats=repeats)
        answers: dict[str, list[str]] = defaultdict(list)
        for rollout in played.rollouts:
            if rollout.response is not None:
                answers[rollout.task.input[-1]["content"]].append(rollout.response.output_text)
        written = written_pairs(write, self.train_rows, options.pairs, options.seed)
        of_policy = policy_pairs(write, rows, answers, options.seed)
        self.results["pairs"] = {"written": len(written), "policy": len(of_policy)}
        self.say("pairs", f"{len(written)} written, {len(of_policy)} with answers of the start")
        return written + of_policy

    def train_reward_model(self, pairs: list[Row]) -> None:
        """Train on the pairs, and measure on pairs of held-out tasks."""
        options, deadline = self.options, self.budget.stage("reward model")
        steps = self.reward_model.train(pairs, options, options.output, deadline)
        held_out = written_pairs(WRITERS[options.environment], self.held_out, 4, options.seed + 1)
        accuracy, interval = mean_interval(self.reward_model.accuracy(held_out), bounded=True)
        self.results["reward_model"] = {"held_out_pairs": len(held_out), "accuracy": accuracy, "interval": interval}
        self.results["reward_model"]["steps"] = steps
        self.say("reward model", f"{len(steps)} steps, right on {accuracy:.0%} of {len(held_out)} held-out pairs")
        self.write()

    def train_policy(self) -> None:
        """GRPO through the contract. The reward is the score of the reward model."""
        from trl import GRPOConfig, GRPOTrainer

        options, deadline = self.options, self.budget.stage("grpo")
        assert not isinstance(self.environment, str), "WRITERS has only environments of this folder"
        environment = scored_by(self.reward_model, self.environment)
        rollouts = TrlRollouts(environment, input=self.train_rows, max_batch=options.max_batch)
        trainer = GRPOTrainer(
            self.weights,
            reward_funcs=rollouts.reward,
            rollout_func=rollouts,
            train_dataset=rollouts.dataset(),
            args=GRPOConfig(
                **trainer_settings(self.weights, options.output, options.seed, options.learning_rate),
                per_device_train_batch_size=options.groups * options.group_size,
                num_generations=options.group_size,
                max_completion_length=64,
                max_steps=options.steps,
                temperature=1.0,
                scale_rewards="batch",  # scores are never equal: within a group, small differences are noise
                beta=0.0,
            ),
            processing_class=self.tokenizer,
            callbacks=[stop_at(deadline)],
        )
        try:
            steps = run_trainer(trainer, "reward")
        finally:
            rollouts.close()
        self.results["grpo"] = {"completions": dict(rollouts.counts), "steps": steps}
        self.say("grpo", f"{len(steps)} steps, score {steps[0]['reward']:.2f} -> {steps[-1]['reward']:.2f}")
        self.write()

    def scores(self, answers: list[Answer]) -> float:
        """The mean score of answers by the reward model."""
        talks = [conversation(answer.asked, answer.text) for answer in answers]
        parts = [talks[at : at + self.options.max_batch] for at in range(0, len(talks), self.options.max_batch)]
        scores = [score for part in parts for score in self.reward_model.scores(part)]
        return sum(scores) / max(1, len(scores))

    def say(self, stage: str, line: str) -> None:
        """Print a line of progress."""
        print(f"{elapsed():5.1f} s  {stage}: {line}", flush=True)

    def write(self) -> None:
        """Write what is known so far."""
        self.results |= {"seconds": round(elapsed(), 1), "cpu_seconds": round(time.process_time(), 1)}
        write_json(self.options.output / "metrics.json", self.results)


def _rate_text(kind: str, rate: Row) -> str:
    if rate["win_rate"] is None:
        return f"{kind}: no pairs"
    low, high = rate["interval"] or (0.0, 1.0)
    ends = f"{rate['wins']} wins, {rate['ties']} ties, {rate['losses']} losses"
    return f"{kind}: win rate {rate['win_rate']:.2f} [{low:.2f}, {high:.2f}] ({ends})"


def main(arguments: list[str] | None = None) -> Row:
    """Run, and say where the metrics are."""
    options = parse(arguments)
    results = Rlhf(options).run()
    print(f"wrote {options.output / 'metrics.json'} after {results['seconds']} s")
    return results


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
