"""From a rollout to rows of a trainer's batch: written once, for the adapters of all trainers.

- Each token sequence of a rollout is a row of its own. Sequences are never joined: a later one has another history.
- A member that does not train (failed, masked, missing) has no rows.
- A trainer that fixes the number of rows gets a filler for such a member: a row without loss. Its number in the place
  of a reward is the mean reward of the group's trained members, so that it moves neither the baseline nor the mean.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import UserError
from ludus.task import digest
from ludus.tokens import Sequence
from ludus.train.group import TrainingGroup, TrainingMember

_WHOLE = re.compile("-?[0-9]{1,18}")

#: The field under which a trainer's data set carries a row of Ludus, as JSON.
ROW = "ludus_row"


@dataclass(slots=True)
class TrainingRow:
    """One sequence, split where the policy began to write. `mask` is 1 for tokens that the policy wrote.

    `version_spans` are the stretches of the whole sequence that one policy version wrote, and `extras` what the server
    said about the tokens of each model call, such as `routed_experts`.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float
    versions: list[int]
    version_spans: list[tuple[int, int, str | None]] = field(default_factory=list)
    extras: list[dict[str, Any] | None] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """The whole sequence."""
        return [*self.prompt_ids, *self.response_ids]

    def token_versions(self) -> list[int]:
        """The policy version of each token of the whole sequence; -1 for context and versions that are not numbers."""
        versions = [-1] * len(self.ids)
        for start, end, version in self.version_spans:
            if version and _WHOLE.fullmatch(version):
                versions[start:end] = [int(version)] * (end - start)
        return versions

    def over_ids(self, values: list[Any], context: Any) -> list[Any]:
        """Values of the response, such as `mask`, as values of the whole sequence."""
        return [*[context] * len(self.prompt_ids), *values]


def rows_of(member: TrainingMember) -> list[TrainingRow]:
    """A row for each sequence of a member that trains; none for any other member."""
    if not member.trains:
        return []
    return [_row(member, sequence) for sequence in member.sequences if any(sequence.mask)]


def _row(member: TrainingMember, sequence: Sequence) -> TrainingRow:
    reward = member.rollout.reward_of(sequence.thread)
    assert reward is not None
    start = sequence.mask.index(1)
    spans = sequence.version_spans
    versions = [int(version) for _, _, version in spans if version and _WHOLE.fullmatch(version)]
    return TrainingRow(
        sequence.ids[:start],
        sequence.ids[start:],
        sequence.mask[start:],
        sequence.logprobs[start:],
        float(reward),
        versions,
        spans,
        sequence.extras,
    )


def filler(group: TrainingGroup, prompt_ids: list[int], token: int) -> TrainingRow:
    """A row without loss for a member that does not train."""
    trained = [member.reward or 0.0 for member in group.trainable]
    mean = sum(trained) / len(trained) if trained else 0.0
    return TrainingRow(prompt_ids or [token], [token], [0], [0.0], mean, [])


def task_of(row: dict[str, Any]) -> str:
    """The id of a row's task: its `task_id`, or else its digest."""
    name = row.get("task_id")
    return str(name) if isinstance(name, (str, int)) else digest(row)


def carried_row(fields: Any, where: str) -> dict[str, Any]:
    """The row of Ludus that a trainer's data carries under `ludus_row`."""
    stored = fields.get(ROW) if isinstance(fields, dict) else None
    try:
        row = json.loads(stored) if isinstance(stored, (str, bytes)) else stored
    except ValueError as error:
        raise UserError(f"{where} holds no JSON in {ROW}: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("responses_create_params"), dict):
        raise UserError(f"{where} names no row of Ludus", f"Make the data with ludus_trainers: it carries {ROW}")
    return row
