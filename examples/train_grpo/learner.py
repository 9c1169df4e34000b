"""A LoRA adapter that GRPO trains, and the vLLM server that generates with its versions."""

from __future__ import annotations

import argparse
import json
import random
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ludus_transformers.loading import load

from ludus.errors import UserError
from ludus.train.group import TrainingGroup


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

    def check(self) -> None:
        """Raise an error unless the server holds adapters and has the routes for training."""
        info = json.loads(self._ask("/server_info?config_format=json"))
        if not info.get("vllm_config", {}).get("lora_config"):
            raise UserError(f"{self.url} holds no adapters", "Start vLLM with --enable-lora")

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return bytes(reply.read())
        except urllib.error.HTTPError as error:
            cause = f"{self.url}{path} answered {error.code}: {error.read(300).decode(errors='replace')}"
            hint = "Start vLLM with --enable-lora, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and VLLM_SERVER_DEV_MODE=1"
            raise UserError(cause, hint) from error
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
        self.shuffled = random.Random(options.seed) if options.control else None

    def step(self, groups: list[TrainingGroup]) -> dict[str, float]:
        """One step of GRPO on finished groups. The loss is the mean over all tokens that the policy wrote."""
        import torch

        sequences = [
            (sequence, advantage)
            for group in groups
            for sequence, advantage in self._rewarded(group)
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

    def _rewarded(self, group: TrainingGroup) -> list[tuple[Any, float]]:
        """The sequences of a group with their advantages, which a control shuffles."""
        sequences = [sequence for member in group.trainable for sequence in member.sequences]
        advantages = [value for values in group.sequence_advantages() for value in values]
        if self.shuffled is not None:
            self.shuffled.shuffle(advantages)
        return list(zip(sequences, advantages, strict=True))

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
