"""Train while the next groups are generated: GRPO on the contract with trainers, with a vLLM server beside it.

The server generates and this process trains a LoRA adapter. After each step the adapter is published to the server
under the name of its version, so a call ends with the weights that it began with. `--ahead 1` generates the groups of
the next step during this one, so they are at most one version old; `--ahead 0` waits for every update.

    VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve FOLDER --served-model-name policy \
        --enable-lora --max-lora-rank 32 --max-loras 4 --logprobs-mode processed_logprobs
    python examples/train_grpo/overlap.py --model FOLDER --server http://127.0.0.1:8000 --environment text_to_sql

Adapters of every `--keep-every` steps stay in the folder `--output`, with the time at which they were there. Held-out
tasks are played with them afterwards, so that measuring costs no time of training. Writes metrics.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from environments import ENVIRONMENTS
from ludus_transformers.adapters import AdapterPolicy
from ludus_transformers.loading import load
from policy import options_of, write_json

import ludus
from ludus.errors import UserError
from ludus.models.vllm import VllmModel
from ludus.train.contract import GroupFeed
from ludus.train.group import TrainingGroup
from ludus.train.policy import GroupPolicy


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Train an adapter while a vLLM server generates.")
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="additions")
    parser.add_argument("--model", required=True, help="the folder of transformers that the server serves")
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    parser.add_argument("--served-name", default="policy", help="the server's name of the model without an adapter")
    parser.add_argument("--ahead", type=int, default=1, help="steps that generation may be ahead; 0 is synchronous")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--groups", type=int, default=6, help="groups of each step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=4e-5)
    parser.add_argument("--clip", type=float, default=0.2, help="how far a step may move the probability of a token")
    parser.add_argument("--lora", type=int, default=32, metavar="RANK")
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences of one backward pass")
    parser.add_argument("--train-tasks", type=int, default=288)
    parser.add_argument("--held-out", type=int, default=96)
    parser.add_argument("--samples", type=int, default=4, help="sampled answers to a held-out task")
    parser.add_argument("--keep-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["train", "measure"], help="train now and measure later, or measure now")
    parser.add_argument("--start-after", type=Path, help="load the weights, then wait until this file is there")
    parser.add_argument("--output", type=Path, default=Path("runs/overlap"))
    return parser.parse_args(arguments)


class Server:
    """The adapters that a vLLM server holds."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")

    def load(self, name: str, folder: Path) -> None:
        """Hold an adapter."""
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})

    def unload(self, name: str) -> None:
        """Forget an adapter."""
        self._post("/v1/unload_lora_adapter", {"lora_name": name})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                reply.read()
        except urllib.error.HTTPError as error:
            cause = f"{self.url}{path} answered {error.code}: {error.read(300).decode(errors='replace')}"
            raise UserError(cause, "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1") from error
        except OSError as error:
            raise UserError(f"{self.url} does not answer: {error}", "Start vLLM, or correct --server") from error


class Learner:
    """The weights, their adapter and its optimizer."""

    def __init__(self, options: argparse.Namespace) -> None:
        try:
            from peft import LoraConfig, get_peft_model
        except ModuleNotFoundError as error:
            raise UserError("adapters need peft", "pip install peft") from error
        import torch

        torch.manual_seed(options.seed)
        weights, self.tokenizer = load(options.model, None, "auto", "auto")
        weights.requires_grad_(False)
        chosen = LoraConfig(
            r=options.lora, lora_alpha=2 * options.lora, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        self.model = get_peft_model(weights, chosen)
        self.model.train()
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=options.learning_rate, weight_decay=0.0)
        self.clip, self.micro_batch = options.clip, options.micro_batch

    def step(self, groups: list[TrainingGroup]) -> dict[str, float]:
        """One step of GRPO on finished groups. The loss is the mean over all tokens that the policy wrote."""
        import torch

        sequences = [
            (sequence, advantage)
            for group in groups
            for member, advantages in zip(group.members, group.sequence_advantages(), strict=True)
            for sequence, advantage in zip(member.sequences if member.trains else (), advantages, strict=True)
            if advantage and any(sequence.mask)
        ]
        tokens = sum(sum(sequence.mask) for sequence, _ in sequences)
        clipped = 0.0
        sequences.sort(key=lambda pair: len(pair[0].ids))
        for start in range(0, len(sequences), self.micro_batch):
            clipped += self._backward(sequences[start : start + self.micro_batch], tokens)
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        norm = float(torch.nn.utils.clip_grad_norm_(trained, 1.0)) if sequences else 0.0
        if norm == norm and norm != float("inf"):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return {"tokens": tokens, "sequences": len(sequences), "clipped": clipped / max(1, tokens), "norm": norm}

    def _backward(self, batch: list[Any], tokens: int) -> float:
        """Add the gradient of some sequences. Returns how many of their tokens were clipped."""
        import torch

        length = max(len(sequence.ids) for sequence, _ in batch)
        first = min(length - len(sequence.ids) + sequence.mask.index(1) for sequence, _ in batch)
        first = max(first, 1)  # a token is predicted by the one before it

        def padded(values: list[list[Any]], fill: Any, dtype: Any) -> Any:
            rows = [[fill] * (length - len(row)) + list(row) for row in values]
            return torch.tensor(rows, dtype=dtype, device=self.model.device)

        ids = padded([sequence.ids for sequence, _ in batch], 0, torch.long)
        there = padded([[1] * len(sequence.ids) for sequence, _ in batch], 0, torch.long)
        mask = padded([sequence.mask for sequence, _ in batch], 0, torch.float32)[:, first:]
        before = padded([sequence.logprobs for sequence, _ in batch], 0.0, torch.float32)[:, first:]
        advantages = torch.tensor([[advantage] for _, advantage in batch], device=self.model.device)
        places = (there.cumsum(1) - 1).clamp(min=0)
        kept = length - first + 1
        logits = self.model(
            input_ids=ids, attention_mask=there, position_ids=places, logits_to_keep=kept, use_cache=False
        ).logits[:, :-1]
        now = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, first:, None])[..., 0]
        ratio = torch.exp(now - before)
        limited = ratio.clamp(1 - self.clip, 1 + self.clip)
        gain = torch.minimum(ratio * advantages, limited * advantages)
        (-(gain * mask).sum() / tokens).backward()
        return float(((ratio != limited) * mask).sum())

    def save(self, folder: Path) -> Path:
        """Write the adapter."""
        self.model.save_pretrained(str(folder))
        return folder


class Run:
    """One training run: what it trains on, its clock and its files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.server = options, Server(options.server)
        self.environment, make_rows, self.settings = ENVIRONMENTS[options.environment]
        rows = make_rows(options.train_tasks + options.held_out, options.seed)
        self.train_rows, self.held_out = rows[: -options.held_out], rows[-options.held_out :]
        self.learner = Learner(options) if options.only != "measure" else None
        self.steps: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.began = time.perf_counter()
        if options.only == "measure":
            written = json.loads((options.output / "metrics.json").read_text(encoding="utf-8"))
            self.steps, self.kept, self.counts = written["steps"], written["kept"], written["rollouts"]

    async def train(self) -> None:
        """All steps. Each takes the groups that are finished first."""
        options = self.options
        model = AdapterPolicy(
            AdapterPolicy.Config(
                base_url=f"{self.server.url}/v1",
                model=options.served_name,
                adapter=f"{options.output.name}-{options.seed}",
                temperature=1.0,
                logprobs="sampled",
            )
        )
        groups = GroupPolicy(size=options.group_size, keep_without_signal=True, max_staleness=options.ahead)
        feed = GroupFeed(
            self.environment,
            input=self.train_rows,
            settings=self.settings,
            seed=options.seed,
            model=model,
            policy=groups,
            groups_per_step=options.groups,
            ahead=options.ahead,
            epochs=None,
        )
        self._publish(model.config.adapter, 1)
        feed.version = 1
        self.began = time.perf_counter()
        self._keep(0)
        async with feed:
            for step in range(1, options.steps + 1):
                await self._step(feed, step, model.config.adapter)
        self.counts = dict(feed.counts)
        self.write()

    async def _step(self, feed: GroupFeed, step: int, adapter: str) -> None:
        began = time.perf_counter()
        groups = [await anext(feed) for _ in range(self.options.groups)]
        arrived = time.perf_counter()
        assert self.learner is not None
        numbers = await asyncio.to_thread(self.learner.step, groups)
        trained = time.perf_counter()
        await asyncio.to_thread(self._publish, adapter, feed.version + 1)
        feed.update()
        done = time.perf_counter()
        rewards = [member.reward or 0.0 for group in groups for member in group.trainable]
        behind = [
            feed.version - 1 - version
            for group in groups
            for member in group.trainable
            for version in member.versions
            if version is not None
        ]
        self.steps.append(
            {
                "step": step,
                "reward": sum(rewards) / max(1, len(rewards)),
                "waited": round(arrived - began, 3),
                "trained": round(trained - arrived, 3),
                "published": round(done - trained, 3),
                "behind": sum(behind) / max(1, len(behind)),
                **numbers,
            }
        )
        if step % self.options.keep_every == 0 or step == self.options.steps:
            self._keep(step)
        print(f"step {step}: training reward {self.steps[-1]['reward']:.3f}, {done - began:.1f} s", flush=True)

    def _publish(self, adapter: str, version: int) -> None:
        assert self.learner is not None
        self.server.load(f"{adapter}-v{version}", self.learner.save(self.options.output / f"v{version}"))
        old = version - self.options.ahead - 2
        if old > 0:
            self.server.unload(f"{adapter}-v{old}")
            if all(kept["folder"] != f"v{old}" for kept in self.kept):
                shutil.rmtree(self.options.output / f"v{old}")

    def _keep(self, step: int) -> None:
        """Note when the adapter of this step was there. Its files stay: version 1 is that of step 0."""
        seconds = round(time.perf_counter() - self.began, 3)
        self.kept.append({"step": step, "seconds": seconds, "folder": f"v{step + 1}"})

    def measure(self) -> None:
        """Play the held-out tasks with every kept adapter, and write the file."""
        options = self.options
        for kept in self.kept:
            name = f"{options.output.name}-{options.seed}-step{kept['step']}"
            self.server.load(name, options.output / kept["folder"])
            for kind, temperature, repeats in (("greedy", 0.0, 1), ("sampled", 1.0, options.samples)):
                config = VllmModel.Config(base_url=f"{self.server.url}/v1", model=name, temperature=temperature)
                played = ludus.collect(
                    self.environment,
                    model=VllmModel(config),
                    input=self.held_out,
                    settings=self.settings,
                    repeats=repeats,
                    seed=options.seed,
                )
                rewards = [rollout.verdict.reward for rollout in played.rollouts if rollout.verdict is not None]
                kept[kind] = sum(rewards) / max(1, len(rewards))
                kept[f"{kind}_failed"] = repeats * len(self.held_out) - len(rewards)
            self.server.unload(name)
            print(
                f"step {kept['step']}, {kept['seconds']:.0f} s: {kept['greedy']:.3f}, {kept['sampled']:.3f}", flush=True
            )
            self.write()

    def write(self) -> None:
        """The file so far."""
        shares = {name: sum(step[name] for step in self.steps) for name in ("waited", "trained", "published")}
        result = {"options": options_of(self.options), "rollouts": self.counts, "seconds": shares}
        write_json(self.options.output / "metrics.json", {**result, "kept": self.kept, "steps": self.steps})


def main(arguments: list[str] | None = None) -> None:
    """Train, then measure."""
    options = parse(arguments)
    run = Run(options)
    while options.start_after is not None and not options.start_after.exists():
        time.sleep(0.2)
    if options.only != "measure":
        asyncio.run(run.train())
    if options.only != "train":
        run.measure()


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
