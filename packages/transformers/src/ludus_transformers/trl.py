"""TRL's `GRPOTrainer`: a `rollout_func` that plays groups of an environment with the trainer's own weights.

    rollouts = TrlRollouts("mcqa", input="train.jsonl")
    trainer = GRPOTrainer(
        model, reward_funcs=rollouts.reward, rollout_func=rollouts, train_dataset=rollouts.dataset(), ...
    )

TRL fixes the number of completions of a step, and each is one sequence:

- A failed member, or one that is missing because its group was closed short, becomes a placeholder without loss. Its
  reward is None, which TRL leaves out of the group's baseline.
- A masked member keeps its tokens, has no loss and the reward None.
- This trainer cannot take a rollout of several sequences. It is left out like a masked one, and counted. If all
  rollouts of a step have several, that is an error. `trl_worker` trains on all sequences of a rollout.
- A step in which every rollout failed has a gradient of 0, and logs why. After three such steps in a row training stops
  with the cause.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Unpack

from ludus.collection.collection import Collection, Environments
from ludus.collection.options import CollectArguments, Options
from ludus.errors import UserError
from ludus.model import Model
from ludus.models.scripted import ScriptedModel
from ludus.train.contract import GroupFeed
from ludus.train.group import TrainingGroup, TrainingMember
from ludus.train.policy import GroupPolicy
from ludus.train.rows import messages_of, with_sampling
from ludus_transformers.failed_steps import FailedSteps
from ludus_transformers.loading import library
from ludus_transformers.loop_thread import LoopThread
from ludus_transformers.trl_model import check_sampling, policy_of

#: The key of a prompt's messages that names its task, and the fields that reach the reward function.
TASK, REWARD = "task_id", "ludus_reward"


#: The loggers of trainers that print a page about a completion whose reward is None.
_LOGGERS = ("trl.trainer.grpo_trainer", "trl.trainer.rloo_trainer")


class _LeftOutQuietly(logging.Filter):
    """Drops TRL's page about a completion of ours that is left out: `TrlRollouts.counts` counts them."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not ("All reward functions returned None" in text and repr(REWARD) in text)


_QUIET = _LeftOutQuietly()


@dataclass(slots=True)
class Completion:
    """One completion as TRL takes it. `mask` is 1 for tokens that the policy wrote."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float | None


def completions_of(group: TrainingGroup, size: int, padding: int, counts: Counter[str]) -> Iterator[Completion]:
    """Exactly `size` completions for a group. `padding` is the token of placeholders."""
    for member in group.members[:size]:
        yield _completion(member, padding, counts)
    counts["failed"] += len(group.failures)
    for _ in range(size - len(group.members)):
        counts["missing"] += 1
        yield _placeholder(padding)


def _completion(member: TrainingMember, padding: int, counts: Counter[str]) -> Completion:
    sequences = member.sequences
    if member.trains and len(sequences) == 1 and any(sequences[0].mask):
        counts["trained"] += 1
        return _whole(member, trains=True)
    counts["several_sequences" if len(sequences) > 1 else "masked"] += 1
    return _whole(member, trains=False) if len(sequences) == 1 and any(sequences[0].mask) else _placeholder(padding)


def _whole(member: TrainingMember, *, trains: bool) -> Completion:
    (sequence,) = member.sequences
    start = sequence.mask.index(1)
    mask = sequence.mask[start:] if trains else [0] * (len(sequence.ids) - start)
    reward = member.reward if trains else None
    return Completion(sequence.ids[:start], sequence.ids[start:], mask, sequence.logprobs[start:], reward)


def _placeholder(padding: int) -> Completion:
    return Completion([padding], [padding], [0], [0.0], None)


class TrlRollouts:
    """A `rollout_func`. `options` are those of `ludus.collect`, such as `input`, `limit` and `settings`.

    The policy is the trainer's live model in this process, in batches of up to `max_batch` requests, or its vLLM server
    if the trainer uses one. Pass `model` to use another. The trainer's temperature, top_p and limit of tokens replace
    those of the rows. `policy` says how groups are filled; its size is the trainer's `num_generations`.
    """

    def __init__(
        self,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        max_batch: int = 64,
        **options: Unpack[CollectArguments],
    ) -> None:
        self._environment, self._options, self._max_batch = environment, options, max_batch
        self._policy = replace(policy or GroupPolicy(), min_size=0, keep_without_signal=True)
        # The rows are needed before there is a trainer with its model.
        reading: CollectArguments = {**options, "model": ScriptedModel(["-"]), "output": None, "resume": False}
        rows = Collection(environment, Options(**reading)).rows
        rows.survey()
        self._rows = {task_id: row for task_id, row, _ in rows}
        self._options["input"] = list(self._rows.values())
        self._options.pop("dataset", None)
        self._thread: LoopThread | None = None
        self._feed: GroupFeed | None = None
        self.counts: Counter[str] = Counter()  #: how the completions so far came about
        self._failed_steps = FailedSteps()
        self._trainer: Any = None  # the owner of the policy's weights
        self._seconds = self._generating = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent on rollouts, and on generation among them if the policy is in this process."""
        running = 0.0 if self._feed is None else float(self._feed.collection.model.stats().get("seconds", 0.0))
        return {"rollouts": self._seconds, "generation": self._generating + running}

    def dataset(self) -> Any:
        """The tasks as a dataset for the trainer: their prompts as messages, which also name the task."""
        return library("datasets").Dataset.from_list([{"prompt": prompt} for prompt in self.prompts()])

    def prompts(self) -> list[list[dict[str, str]]]:
        """The prompt of each task, as the trainer logs it. The model gets the task's own."""
        return [_messages(task_id, row) for task_id, row in self._rows.items()]

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play one rollout for each prompt. Prompts come repeated: `num_generations` times each."""
        began = time.perf_counter()
        sizes = _groups([_task_id(prompt) for prompt in prompts], _generations(trainer))
        if trainer is not self._trainer:  # another trainer has other weights
            self.close()
        feed = self._feed or self._start(trainer)
        assert self._thread is not None
        version = int(trainer.state.global_step)
        rows = [(name, _sampled(self._row(name), trainer.args), size) for name, size in sizes]
        groups = self._thread.run(_play(feed, rows, version))
        tokenizer = trainer.processing_class
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        completions: list[Completion] = []
        counts: Counter[str] = Counter()
        for group, (_, size) in zip(groups, sizes, strict=True):
            completions += completions_of(group, size, padding, counts)
        _check_trainable(completions, counts)
        self.counts += counts
        failures = [member.failure for group in groups for member in group.failures]
        self._failed_steps.add(failures, sum(len(group.members) for group in groups))
        self._seconds += time.perf_counter() - began
        return {
            "prompt_ids": [completion.prompt_ids for completion in completions],
            "completion_ids": [completion.completion_ids for completion in completions],
            "env_mask": [completion.mask for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
            REWARD: [completion.reward for completion in completions],
        }

    def reward(self, prompts: list[Any], completions: list[Any], **fields: Any) -> list[float | None]:
        """The reward function for the trainer: the verifier's rewards, None for what cannot be trained on."""
        log_metric = fields.get("log_metric")
        for name in ("failed", "missing", "masked", "several_sequences") if log_metric is not None else ():
            log_metric(f"ludus/{name}", float(self.counts[name]))  # type: ignore[misc]
        rewards: list[float | None] = fields[REWARD]
        return rewards

    def close(self) -> None:
        """Stop the policy and close the sessions."""
        if self._thread is not None:
            self._generating = self.seconds["generation"]
            if self._feed is not None:
                self._thread.run(self._feed.__aexit__(None, None, None))
            self._thread.close()
            self._thread = self._feed = self._trainer = None

    def _start(self, trainer: Any) -> GroupFeed:
        check_sampling(trainer.args)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_QUIET)  # a logger keeps a filter once
        chosen = self._options.get("model")
        model = chosen if isinstance(chosen, (str, Model)) else policy_of(trainer, self._max_batch)
        options: CollectArguments = {**self._options, "model": model}
        options.setdefault("concurrency", self._max_batch)
        policy = replace(self._policy, size=_generations(trainer))
        self._feed = GroupFeed(self._environment, policy=policy, **options)
        self._thread = LoopThread()
        try:
            self._thread.run(self._feed.__aenter__())
        except BaseException:
            self._thread.close()
            self._thread = self._feed = None
            raise
        self._trainer = trainer
        return self._feed

    def _row(self, task_id: str) -> dict[str, Any]:
        row = self._rows.get(task_id)
        if row is None:
            raise UserError(f"a prompt names the unknown task {task_id!r:.80}", "Train on the dataset of this object")
        return row


async def _play(feed: GroupFeed, rows: list[tuple[str, dict[str, Any], int]], version: int) -> list[TrainingGroup]:
    if version != feed.version:
        feed.update(version)
    return await asyncio.gather(*(feed.play(task_id, row, size) for task_id, row, size in rows))


def _generations(trainer: Any) -> int:
    training = getattr(trainer.model, "training", True)
    size = trainer.num_generations if training else getattr(trainer, "num_generations_eval", trainer.num_generations)
    return int(size)


def _groups(task_ids: list[str], size: int) -> list[tuple[str, int]]:
    """The task and the number of members of each group: runs of equal ids, of at most `size`."""
    groups: list[tuple[str, int]] = []
    for task_id, run in itertools.groupby(task_ids):
        count = len(list(run))
        groups += [(task_id, min(size, count - start)) for start in range(0, count, size)]
    return groups


def _task_id(prompt: Any) -> str:
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict) and isinstance(prompt[0].get(TASK), str):
        task_id: str = prompt[0][TASK]
        return task_id
    raise UserError("a prompt names no task", "Pass train_dataset=rollouts.dataset() to the trainer")


def _messages(task_id: str, row: dict[str, Any]) -> list[dict[str, str]]:
    return [{**message, TASK: task_id} for message in messages_of(row)]


def _sampled(row: dict[str, Any], args: Any) -> dict[str, Any]:
    limit = args.max_completion_length
    return with_sampling(row, temperature=args.temperature, top_p=args.top_p, max_tokens=limit)


def _check_trainable(completions: list[Completion], counts: Counter[str]) -> None:
    """Count a step without trainable completions: its loss is 0. Refuse rollouts that can never be trained on."""
    if any(any(completion.mask) for completion in completions):
        return
    if counts["several_sequences"] == len(completions):
        cause = "every rollout has several token sequences: the chat template changes earlier turns"
        raise UserError(cause, "Use a template that keeps them, or TrlWorker with TRL's AsyncGRPOTrainer")
    counts["empty_steps"] += 1
