"""A row of an environment as a trainer needs it: the prompt as messages, and the sampling that the trainer wants."""

from __future__ import annotations

from typing import Any, Unpack

from ludus.collection.collection import Collection, Environments
from ludus.collection.options import CollectArguments, Options
from ludus.models.scripted import ScriptedModel
from ludus.response import texts_of


def rows_in(environment: Environments = None, **options: Unpack[CollectArguments]) -> list[tuple[str, dict[str, Any]]]:
    """The checked rows of an environment with the ids of their tasks, for a trainer's dataset."""
    reading: CollectArguments = {**options, "model": ScriptedModel(["-"]), "output": None, "resume": False}
    rows = Collection(environment, Options(**reading)).rows
    rows.survey()
    return [(task_id, {**row, "task_id": task_id}) for task_id, row, _ in rows]


def with_sampling(row: dict[str, Any], *, max_tokens: int | None = None, **settings: Any) -> dict[str, Any]:
    """A row with the trainer's settings, such as `temperature`, where they are not None.

    A model call generates at most `min(the row's, the trainer's)` tokens.
    """
    wanted = {name: value for name, value in settings.items() if value is not None}
    params = {**row["responses_create_params"], **wanted}
    limits = [limit for limit in (params.get("max_output_tokens"), max_tokens) if limit]
    if limits:
        params["max_output_tokens"] = min(limits)
    return {**row, "responses_create_params": params}


def messages_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """The prompt of a row as messages, for the columns in which a trainer shows prompts."""
    prompt = row["responses_create_params"]["input"]
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    messages = [{"role": str(item["role"]), "content": texts_of(item)} for item in items if "role" in item]
    return messages or [{"role": "user", "content": ""}]
