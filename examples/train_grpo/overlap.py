"""Train while the next groups are generated: GRPO on the contract with trainers, with a vLLM server beside it.

The server generates and this process trains a LoRA adapter. After each step the adapter is published to the server
under the name of its version, so a call ends with the weights that it began with. `--ahead 1` generates the groups of
the next step during this one, so they are at most one version old; `--ahead 0` waits for every update. `--agent text`
plays the training tasks with `text_calls.py`, `--test-agents tools text` the held-out ones with both agents.

    VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve FOLDER --served-model-name policy \
        --enable-lora --max-lora-rank 32 --max-loras 4 --logprobs-mode processed_logprobs
    python examples/train_grpo/overlap.py --model FOLDER --server http://127.0.0.1:8000 --environment text_to_sql

Adapters of every `--keep-every` steps stay in the folder `--output`, with the time at which they were there. Held-out
tasks are played with them afterwards, so that measuring costs no time of training. Writes metrics.json.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from environments import ENVIRONMENTS
from learner import Learner, Server
from ludus_transformers.adapters import AdapterPolicy
from policy import options_of, read_metrics, write_json
from server_options import server_options
from text_calls import TextCalls

import ludus
from ludus import Environment
from ludus.agents.simple import SimpleAgent
from ludus.errors import UserError
from ludus.models.vllm import VllmModel
from ludus.train.contract import GroupFeed
from ludus.train.policy import GroupPolicy

#: The agents that can play, by the form of a call: through the model server's tools, or as text.
AGENTS = {"tools": SimpleAgent, "text": TextCalls}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = server_options("Train an adapter while a vLLM server generates.", output="runs/overlap")
    parser.add_argument("--clip", type=float, default=0.2, help="how far a step may move the probability of a token")
    parser.add_argument("--held-out", type=int, default=96)
    parser.add_argument("--samples", type=int, default=4, help="sampled answers to a held-out task")
    parser.add_argument("--keep-every", type=int, default=5)
    parser.add_argument("--control", action="store_true", help="permute the advantages within each group")
    parser.add_argument("--agent", choices=AGENTS, default="tools", help="the agent that plays the training tasks")
    parser.add_argument(
        "--test-agents", choices=AGENTS, nargs="+", help="agents of the held-out tasks; default: --agent"
    )
    parser.add_argument("--only", choices=["train", "measure"], help="train now and measure later, or measure now")
    parser.add_argument("--start-after", type=Path, help="load the weights, then wait until this file is there")
    return parser.parse_args(arguments)


class Run:
    """One training run: what it trains on, its clock and its files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.server = options, Server(options.server)
        which, make_rows, self.settings = ENVIRONMENTS[options.environment]
        environment = Environment.load(which)
        self.environments = {"tools": environment, "text": replace(environment, agent=TextCalls())}
        rows = make_rows(options.train_tasks + options.held_out, options.seed)
        self.train_rows, self.held_out = rows[: -options.held_out], rows[-options.held_out :]
        self.learner = Learner(options) if options.only != "measure" else None
        self.steps: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.trained_with = options_of(options)
        self.began = time.perf_counter()
        if options.only == "measure":
            written = read_metrics(options.output / "metrics.json")
            self.steps, self.kept, self.counts = written["steps"], written["kept"], written["rollouts"]
            self.trained_with = written["options"]

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
            self.environments[options.agent],
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
            kept["agents"] = {agent: self._measured(name, agent) for agent in options.test_agents or [options.agent]}
            self.server.unload(name)
            told = (
                f"{agent} {values['greedy']:.3f} {values['sampled']:.3f}" for agent, values in kept["agents"].items()
            )
            print(f"step {kept['step']}, {kept['seconds']:.0f} s: {', '.join(told)}", flush=True)
            self.write()

    def _measured(self, name: str, agent: str) -> dict[str, float]:
        """The held-out reward of an adapter under one agent, and how many rollouts have none."""
        options, measured = self.options, dict[str, float]()
        for kind, temperature, repeats in (("greedy", 0.0, 1), ("sampled", 1.0, options.samples)):
            config = VllmModel.Config(base_url=f"{self.server.url}/v1", model=name, temperature=temperature)
            played = ludus.collect(
                self.environments[agent],
                model=VllmModel(config),
                input=self.held_out,
                settings=self.settings,
                repeats=repeats,
                seed=options.seed,
            )
            rewards = [rollout.verdict.reward for rollout in played.rollouts if rollout.verdict is not None]
            measured[kind] = sum(rewards) / max(1, len(rewards))
            measured[f"{kind}_failed"] = repeats * len(self.held_out) - len(rewards)
        return measured

    def write(self) -> None:
        """The file so far."""
        shares = {name: sum(step[name] for step in self.steps) for name in ("waited", "trained", "published")}
        result = {"options": self.trained_with, "rollouts": self.counts, "seconds": shares}
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
