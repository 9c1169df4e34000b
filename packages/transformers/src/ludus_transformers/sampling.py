"""Chooses the next token of each row, with the row's own temperature, top_p and random numbers.

One random number is drawn per token. Log probabilities are those of the distribution that a token was drawn from, after
temperature and top_p; at temperature 0 they are those of the model's logits.

Logits that are no distribution (NaN, positive infinity, or all of them negative infinity) give a log probability of
NaN. No id is ever beyond the vocabulary: on a GPU that would end the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

import torch

_COLDEST = 1e-6  # lower temperatures round to 0, and draw the likeliest token in any case
_NUCLEUS = 1024  # a top_p nucleus is rarely larger, and topk is faster than sorting the vocabulary


class Drawn(Protocol):
    """How the tokens of a row are drawn."""

    temperature: float
    top_p: float
    random: Random


def choose(logits: torch.Tensor, rows: Sequence[Drawn]) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of each row and its log probability."""
    logits = logits.float()
    mass = logits.logsumexp(dim=-1)
    is_distribution = mass.isfinite()
    logits = logits.where(is_distribution[:, None], 0.0)
    chosen = logits.argmax(dim=-1)
    logprobs = logits.gather(1, chosen[:, None])[:, 0] - mass
    if sampled := [index for index, row in enumerate(rows) if row.temperature > 0]:
        where = torch.tensor(sampled, device=logits.device)
        chosen[where], logprobs[where] = _draw(logits[where], [rows[index] for index in sampled])
    return chosen, logprobs.where(is_distribution, torch.nan)


def _draw(logits: torch.Tensor, rows: Sequence[Drawn]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample in vocabulary order, so that rounding differences between batches rarely change a token."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    temperatures = column([max(row.temperature, _COLDEST) for row in rows])
    below_best = logits - logits.max(dim=-1, keepdim=True).values
    logprobs = (below_best / temperatures.float()).log_softmax(dim=-1)
    probabilities = logprobs.exp()
    if any(row.top_p < 1 for row in rows):
        least = _least_likely(probabilities, column([row.top_p for row in rows]))
        probabilities = probabilities.where(probabilities >= least, 0.0)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    drawn = column([row.random.random() for row in rows]) * total
    drawn = torch.minimum(drawn, torch.nextafter(total, torch.zeros_like(total)))
    chosen = torch.searchsorted(cumulative, drawn, right=True).clamp_(max=logits.shape[-1] - 1)
    # Without top_p the total is 1 up to rounding, which the log probability should not inherit.
    log_mass = total.log().where(column([row.top_p for row in rows]) < 1, 0.0)
    return chosen[:, 0], (logprobs.gather(1, chosen) - log_mass).float()[:, 0]


def _least_likely(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The probability of the last token in the nucleus, the smallest set with mass `top_p`; 0 if `top_p` is 1."""
    top = probabilities.topk(min(_NUCLEUS, probabilities.shape[-1])).values
    mass = top.cumsum(dim=-1, dtype=torch.float64)
    if bool((mass[:, -1:] < top_p).logical_and(top_p < 1).any()):
        top = probabilities.sort(descending=True).values
        mass = top.cumsum(dim=-1, dtype=torch.float64)
    last = (mass < top_p).sum(dim=-1, keepdim=True).clamp(max=top.shape[-1] - 1)
    return top.gather(1, last).where(top_p < 1, 0.0)
