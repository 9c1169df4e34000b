"""A reward model: the policy's architecture with a head of one number, trained on pairs with TRL's RewardTrainer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from budget import stop_at
from policy import Row, dataset, run_trainer, trainer_settings
from preferences import conversation

from ludus import Resources, Response, Verdict


class RewardModel:
    """Scores conversations. It starts from the weights of a policy, with a new head."""

    def __init__(self, policy: Any, tokenizer: Any) -> None:
        from transformers import AutoModelForSequenceClassification

        names = {"id2label": {0: "score"}, "label2id": {"score": 0}}
        config = type(policy.config).from_dict(policy.config.to_dict() | names)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        config.pad_token_id = tokenizer.pad_token_id
        self.weights = AutoModelForSequenceClassification.from_config(config)
        self.weights.base_model.load_state_dict(policy.base_model.state_dict())
        self.weights.to(policy.device)
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    def train(self, pairs: list[Row], options: Any, output: Path, deadline: float) -> list[Row]:
        """Train on pairs until the steps or the time are over. Returns the numbers of each step."""
        from trl import RewardConfig, RewardTrainer

        trainer = RewardTrainer(
            self.weights,
            args=RewardConfig(
                **trainer_settings(self.weights, output, options.seed, options.reward_rate),
                per_device_train_batch_size=options.batch,
                max_steps=options.reward_steps,
                max_length=256,
            ),
            train_dataset=dataset(pairs),
            processing_class=self.tokenizer,
            callbacks=[stop_at(deadline)],
        )
        steps = run_trainer(trainer, "loss")
        self.weights.eval()
        return steps

    def scores(self, conversations: list[list[dict[str, str]]]) -> list[float]:
        """One number for each conversation. Blocks."""
        import torch

        texts = [self.tokenizer.apply_chat_template(conversation, tokenize=False) for conversation in conversations]
        with self._lock, torch.no_grad():
            inputs = self.tokenizer(
                texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
            )
            inputs.pop("token_type_ids", None)
            scores: list[float] = self.weights(**inputs.to(self.weights.device)).logits[:, 0].float().tolist()
        return scores

    def accuracy(self, pairs: list[Row]) -> list[float]:
        """For each pair 1 if the chosen answer has the greater score, else 0."""
        chosen = self.scores([pair["chosen"] for pair in pairs])
        rejected = self.scores([pair["rejected"] for pair in pairs])
        return [float(better > worse) for better, worse in zip(chosen, rejected, strict=True)]


def scored_by(model: RewardModel, environment: type[Resources]) -> type[Resources]:
    """An environment whose rewards are the scores of a reward model, a group at a time. Its verifier is not used."""

    class Preferred(environment):  # type: ignore[misc, valid-type]
        async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
            asked = task.input[-1]["content"]
            talks = [conversation(asked, response.output_text) for response in responses]
            return [Verdict(score) for score in await asyncio.to_thread(model.scores, talks)]

    return Preferred
