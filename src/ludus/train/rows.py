"""From a rollout to rows of a trainer's batch: written once, for the adapters of all trainers.

- Each token sequence of a rollout is a row of its own. Sequences are never joined: a later one has another history.
- A member that does not train (failed, masked, missing) has no rows.
- A trainer that fixes the number of rows gets a filler for such a member: a row without loss. Its number in the place
  of a reward is the mean reward of the group's trained members, so that it moves neither the baseline nor the mean.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ludus.errors import UserError
from ludus.models.token_engine import ENGINE_EXTRA
from ludus.task import digest
from ludus.tokens import Sequence
from ludus.train.group import TrainingGroup, TrainingMember

#: The field under which a trainer's data set carries a row of Ludus, as JSON.
ROW = "ludus_row"


@dataclass(slots=True)
class TrainingRow:
    """One sequence, split where the policy began to write. `mask` is 1 for tokens that the policy wrote."""

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float
    versions: list[int]

    @property
    def ids(self) -> list[int]:
        """The whole sequence."""
        return [*self.prompt_ids, *self.response_ids]

    def over_ids(self, values: list[Any], context: Any) -> list[Any]:
        """Values of the response, such as `mask`, as values of the whole sequence."""
        return [*[context] * len(self.prompt_ids), *values]


def rows_of(member: TrainingMember) -> list[TrainingRow]:
    """A row for each sequence of a member that trains; none for any other member."""
    if not member.trains:
        return []
    return [_row(member, each) for each in member.sequences if any(each.mask)]


def _row(member: TrainingMember, sequence: Sequence) -> TrainingRow:
    assert member.reward is not None
    start = sequence.mask.index(1)
    versions = [int(each) for each in sequence.policy_versions if each is not None and each.lstrip("-").isdigit()]
    return TrainingRow(
        sequence.ids[:start],
        sequence.ids[start:],
        sequence.mask[start:],
        sequence.logprobs[start:],
        float(member.reward),
        versions,
    )


def filler(group: TrainingGroup, prompt_ids: list[int], token: int) -> TrainingRow:
    """A row without loss for a member that does not train."""
    trained = [member.reward or 0.0 for member in group.trainable]
    mean = sum(trained) / len(trained) if trained else 0.0
    return TrainingRow(prompt_ids or [token], [token], [0], [0.0], mean, [])


def task_of(row: dict[str, Any]) -> str:
    """The id of a row's task: its `task_id`, or else its digest."""
    given = row.get("task_id")
    return str(given) if isinstance(given, (str, int)) else digest(row)


def carried_row(fields: Any, where: str) -> dict[str, Any]:
    """The row of Ludus that a trainer's data carries under `ludus_row`."""
    given = fields.get(ROW) if isinstance(fields, dict) else None
    try:
        row = json.loads(given) if isinstance(given, (str, bytes)) else given
    except ValueError as error:
        raise UserError(f"{where} holds no JSON in {ROW}: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("responses_create_params"), dict):
        raise UserError(f"{where} names no row of Ludus", f"Make the data with ludus.train: it carries {ROW}")
    return row


def with_sampling(
    row: dict[str, Any],
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A row with the trainer's temperature and top_p, and at most its number of tokens in each model call.

    `extra` reaches the trainer's engine with every call.
    """
    params = dict(row["responses_create_params"])
    for name, value in (("temperature", temperature), ("top_p", top_p), (ENGINE_EXTRA, extra)):
        if value is not None:
            params[name] = value
    limits = [limit for limit in (params.get("max_output_tokens"), max_tokens) if limit]
    if limits:
        params["max_output_tokens"] = min(limits)
    return {**row, "responses_create_params": params}


def messages_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """The prompt of a row as messages, for the columns in which a trainer shows prompts."""
    from ludus.response import texts_of

    given = row["responses_create_params"]["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    said = [{"role": str(item["role"]), "content": texts_of(item)} for item in items if "role" in item]
    return said or [{"role": "user", "content": ""}]
