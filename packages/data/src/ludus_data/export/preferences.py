"""Formats of pairs: the best rollout of a task against its worst. See `pairs.py` for the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ludus.errors import UserError
from ludus_data.export.conversation import Conversation
from ludus_data.export.format import ExportRow, Format, Unit


class _Preference(Format):
    takes = "pair"

    def _pair(self, unit: Unit) -> tuple[Conversation, Conversation]:
        chosen, rejected = unit
        return self.conversations.of(chosen), self.conversations.of(rejected)


class Dpo(_Preference):
    """`prompt`, `chosen`, `rejected` and `tools`."""

    name = "dpo"
    summary = "pairs for TRL's DPOTrainer: the best rollout of a task against its worst"

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row for a pair."""
        chosen, rejected = self._pair(unit)
        yield {
            "prompt": chosen.prompt,
            "chosen": chosen.completion,
            "rejected": rejected.completion,
            "tools": chosen.tools,
            "ludus": _origins(unit),
        }


class Kto(_Preference):
    """`prompt`, `completion`, `label` and `tools`."""

    name = "kto"
    summary = "single answers with a label for TRL's KTOTrainer: the best of a task is true, its worst is false"

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """Two rows for a pair."""
        for conversation, sample, label in zip(self._pair(unit), unit, (True, False), strict=True):
            yield {
                "prompt": conversation.prompt,
                "completion": conversation.completion,
                "label": label,
                "tools": conversation.tools,
                "ludus": sample.origin(),
            }


class RewardModel(_Preference):
    """`chosen` and `rejected` as whole conversations, and the `margin` of their rewards."""

    name = "rm"
    summary = "pairs for TRL's RewardTrainer, with the margin of their rewards"

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row for a pair."""
        chosen, rejected = self._pair(unit)
        best, worst = (sample.scored for sample in unit)
        if not math.isfinite(best - worst):
            cause = f"task {unit[0].task_id:.80}: the rewards {best:g} and {worst:g} are too far apart"
            raise UserError(f"{cause} for a margin", "Score the run again with smaller rewards")
        yield {
            "chosen": chosen.messages,
            "rejected": rejected.messages,
            "margin": best - worst,
            "tools": chosen.tools,
            "ludus": _origins(unit),
        }


class NemoPreference(_Preference):
    """NeMo RL's `PreferenceDataset`: a context and ranked completions."""

    name = "nemo-preference"
    summary = "pairs for NeMo RL's PreferenceDataset"

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row for a pair. The dataset has no place for tools."""
        chosen, rejected = self._pair(unit)
        if chosen.tools:
            self.losses.lose("tools: NeMo RL's PreferenceDataset has no place for them")
        yield {
            "context": chosen.prompt,
            "completions": [
                {"rank": rank, "completion": conversation.completion}
                for rank, conversation in enumerate((chosen, rejected))
            ],
            "ludus": _origins(unit),
        }


def _origins(unit: Unit) -> dict[str, Any]:
    chosen, rejected = unit
    return {"chosen": chosen.origin(), "rejected": rejected.origin()}
