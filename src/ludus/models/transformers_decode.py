"""Decodes a batch of prompts, each row with its own settings and independent of the others.

Every row has its own temperature, top_p, random generator, limit and end, and draws one random number per token. A row
leaves the batch when it is complete, reaches its limit or is cancelled. Log probabilities are those of the distribution
that a token was drawn from, after temperature and top_p; at temperature 0 they are those of the model's logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

_NUCLEUS = 1024  # a top_p nucleus is rarely larger, and topk is faster than sorting the vocabulary


@dataclass(eq=False, slots=True)
class Row:
    """One prompt and the tokens generated after it.

    `is_complete` says whether the generated ids are complete, `is_cancelled` whether the request was cancelled.
    """

    prompt: list[int]
    limit: int
    is_complete: Callable[[list[int]], bool]
    is_cancelled: Callable[[], bool] = lambda: False
    temperature: float = 1.0
    top_p: float = 1.0
    random: Random = field(default_factory=Random)
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    complete: bool = False

    def add(self, token: int, logprob: float) -> bool:
        """Add the next token. Returns True if it is the last."""
        self.generated.append(token)
        self.logprobs.append(logprob)
        self.complete = self.is_complete(self.generated)
        return self.complete or len(self.generated) >= self.limit or self.is_cancelled()


def decode(model: Any, rows: list[Row], done: Callable[[Row], None]) -> None:
    """Generate all rows, and call `done` with each row when it ends. Blocks."""
    if not rows:
        return
    with torch.no_grad(), _evaluating(model):
        step = _Step(model)
        tokens, mask = (tensor.to(model.device) for tensor in _padded([row.prompt for row in rows]))
        while rows:
            chosen, logprobs = choose(step(tokens, mask), rows)
            new_tokens = zip(rows, chosen.tolist(), logprobs.tolist(), strict=True)
            ended = [row.add(token, logprob) for row, token, logprob in new_tokens]
            for row, over in zip(rows, ended, strict=True):
                if over:
                    done(row)
            if any(ended):
                rows = [row for row, over in zip(rows, ended, strict=True) if not over]
                kept = torch.tensor(ended, device=mask.device).logical_not().nonzero()[:, 0]
                chosen, mask = chosen[kept], mask[kept]
                step.keep(kept)
            tokens = chosen[:, None]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)


def choose(logits: torch.Tensor, rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of each row and its log probability."""
    logits = logits.float()
    chosen = logits.argmax(dim=-1)
    logprobs = logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(dim=-1)
    if sampled := [index for index, row in enumerate(rows) if row.temperature > 0]:
        where = torch.tensor(sampled, device=logits.device)
        chosen[where], logprobs[where] = _draw(logits[where], [rows[index] for index in sampled])
    return chosen, logprobs


def _draw(logits: torch.Tensor, rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample in vocabulary order, so that rounding differences between batches rarely change a token."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    logprobs = (logits / column([row.temperature for row in rows]).float()).log_softmax(dim=-1)
    probabilities = logprobs.exp()
    if any(row.top_p < 1 for row in rows):
        least = _least_likely(probabilities, column([row.top_p for row in rows]))
        probabilities = probabilities.where(probabilities >= least, 0.0)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    drawn = column([row.random.random() for row in rows]) * total
    drawn = torch.minimum(drawn, torch.nextafter(total, torch.zeros_like(total)))
    chosen = torch.searchsorted(cumulative, drawn, right=True)
    # Without top_p the total is 1 up to rounding, which the log probability should not inherit.
    kept = total.log().where(column([row.top_p for row in rows]) < 1, 0.0)
    return chosen[:, 0], (logprobs.gather(1, chosen) - kept).float()[:, 0]


def _least_likely(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The probability of the last token in the nucleus, the smallest set with mass `top_p`; 0 if `top_p` is 1."""
    top = probabilities.topk(min(_NUCLEUS, probabilities.shape[-1])).values
    mass = top.cumsum(dim=-1, dtype=torch.float64)
    if bool((mass[:, -1:] < top_p).logical_and(top_p < 1).any()):
        top = probabilities.sort(descending=True).values
        mass = top.cumsum(dim=-1, dtype=torch.float64)
    last = (mass < top_p).sum(dim=-1, keepdim=True).clamp(max=top.shape[-1] - 1)
    return top.gather(1, last).where(top_p < 1, 0.0)


class _Step:
    """The model with its KV cache: takes new tokens, returns the logits of the next."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        known = inspect.signature(inner.forward).parameters
        self._extra = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self._positions = "position_ids" in known

    def __call__(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        inputs = {"input_ids": tokens, "attention_mask": mask, "past_key_values": self._cache, **self._extra}
        if self._positions:
            inputs["position_ids"] = (mask.cumsum(dim=-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        output = self._model(**inputs, use_cache=True, return_dict=True)
        self._cache = output.past_key_values
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all other rows from the cache."""
        if len(rows):
            self._cache.batch_select_indices(rows)


def _padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts padded on the left to one width, and the attention mask that hides the padding."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode (no dropout). Afterwards each module has its previous mode again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
