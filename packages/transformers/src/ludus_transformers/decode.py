"""Decodes prompts, each row with its own settings and independent of the others.

Batching is continuous: a row leaves when it is complete, reaches its limit or is cancelled, and waiting rows take its
place, so that a short answer never waits for the longest of its batch. A row joins by filling the key-value cache with
its prompt but for the last token; the last token is its first step. Equal prompts that join together are computed once.

Models with another cache than plain attention (sliding windows, state spaces) decode batch by batch.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from ludus_transformers.sampling import choose
from ludus_transformers.slots import SlotCache, holds, inner


@dataclass(eq=False, slots=True)
class Row:
    """One prompt and the tokens generated after it.

    `is_complete` says whether the generated ids are complete, `is_cancelled` whether the request was cancelled. A row
    is `broken` if the model's logits were no distribution: it ends without that token.
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
    broken: bool = False

    def add(self, token: int, logprob: float) -> bool:
        """Add the next token. Returns True if it is the last."""
        if math.isnan(logprob):
            self.broken = True
            return True
        self.generated.append(token)
        self.logprobs.append(logprob)
        self.complete = self.is_complete(self.generated)
        return self.complete or len(self.generated) >= self.limit or self.is_cancelled()


#: Takes at most this number of waiting rows, without blocking.
Take = Callable[[int], list[Row]]


class Decoder:
    """Decodes rows with one model. Keeps its cache, and on a GPU its graphs, for the next call."""

    def __init__(self, model: Any, size: int) -> None:
        self._model, self._size = model, size
        self._cache = SlotCache(model, size) if holds(model) else None

    def run(self, take: Take, done: Callable[[Row], None]) -> None:
        """Decode all rows that `take` gives until there are none, and call `done` with each when it ends. Blocks."""
        with torch.no_grad(), _evaluating(self._model):
            if self._cache is not None:
                _continuous(self._cache, self._size, take, done)
            else:
                while rows := take(self._size):
                    _batch(self._model, rows, done)


def _continuous(cache: SlotCache, size: int, take: Take, done: Callable[[Row], None]) -> None:
    cache.begin()
    rows: list[Row] = []
    ready, joining = 0.0, 0.0
    while True:
        now = time.perf_counter()
        # Filling the cache holds up every row that decodes: it gets at most half of the time.
        if (not rows or now >= ready) and (joined := take(size - len(rows))):
            cache.join([row.prompt for row in joined])
            rows += joined
            joining = time.perf_counter() - now
            ready = now + 2 * joining
        if not rows:
            return
        chosen, logprobs = choose(cache.step(), rows)
        new_tokens = zip(rows, chosen.tolist(), logprobs.tolist(), strict=True)
        ended = [row.add(token, logprob) for row, token, logprob in new_tokens]
        if any(ended):
            for row, over in zip(rows, ended, strict=True):
                if over:
                    done(row)
            cache.erase([index for index, row in enumerate(rows) if row.broken])
            moves = cache.keep([index for index, over in enumerate(ended) if not over])
            rows = [rows[index] for index in moves]
            chosen = chosen[torch.tensor(moves, dtype=torch.long, device=chosen.device)]
        cache.write(chosen)


def _batch(model: Any, rows: list[Row], done: Callable[[Row], None]) -> None:
    """Decode one batch with the model's own cache. Rows leave, none joins."""
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
            running = torch.tensor(ended, device=mask.device).logical_not().nonzero()[:, 0]
            chosen, mask = chosen[running], mask[running]
            step.keep(running)
        tokens = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)


class _Step:
    """The model with the cache that it makes itself: takes new tokens, returns the logits of the next."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None
        known = inspect.signature(type(inner(model)).forward).parameters
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
