"""Tasks: one row of a dataset, with the prompt for the model and the fields that the verifier needs."""

from __future__ import annotations

import re
from copy import deepcopy
from hashlib import blake2b
from typing import Any
from zlib import crc32

import orjson
from pydantic import BaseModel, ConfigDict, field_validator

_DIGEST = re.compile(r"[0-9a-f]{16}")
_NAME_LENGTH = 60


class Task(BaseModel):
    """Base of every environment's `Task`. Declare the fields your verifier reads; all other fields of a row are kept.

    class Task(ludus.Task):
        expected_answer: str
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    responses_create_params: dict[str, Any]

    @classmethod
    def unchecked(cls, row: dict[str, Any]) -> Task:
        """The task of a stored row, whose fields were checked when it was played."""
        task = cls.model_construct(responses_create_params=row.get("responses_create_params") or {"input": []})
        assert task.__pydantic_extra__ is not None
        task.__pydantic_extra__ |= {key: value for key, value in row.items() if key != "responses_create_params"}
        return task

    @property
    def input(self) -> list[dict[str, Any]]:
        """The prompt, as items."""
        prompt = self.responses_create_params["input"]
        return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools that this row offers, or None if it offers all tools of the environment."""
        return self.responses_create_params.get("tools")

    @field_validator("responses_create_params")
    @classmethod
    def _check_request(cls, params: dict[str, Any]) -> dict[str, Any]:
        prompt, tools = params.get("input"), params.get("tools")
        if not isinstance(prompt, str) and not _are_objects(prompt):
            raise ValueError("input must be a string or a list of items")
        if tools is not None and not _are_objects(tools):
            raise ValueError("tools must be a list of objects")
        return params


def digest(row: dict[str, Any]) -> str:
    """A hash of a row's content, the same for any order of its keys."""
    return blake2b(orjson.dumps(row, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def name_of_task(task_id: str, about: str) -> str:
    """What tables call a task: the `task_id` of its row, or the first words of its prompt if the row has none.

    Without a `task_id` in the row, the id of the task is a digest of the row.
    """
    words = " ".join(about[: 4 * _NAME_LENGTH].split())
    if not words or not _DIGEST.fullmatch(task_id):
        return task_id
    return words if len(words) <= _NAME_LENGTH else words[:_NAME_LENGTH].rpartition(" ")[0] + " ..."


def private(row: dict[str, Any]) -> dict[str, Any]:
    """A deep copy of a row for one session: changes to its task reach neither other sessions nor the record."""
    try:
        copy: dict[str, Any] = orjson.loads(orjson.dumps(row))
    except TypeError:  # a value that orjson cannot encode, such as a lone surrogate
        return deepcopy(row)
    return copy


def derive_seed(run_seed: int, task_id: str, repeat: int) -> int:
    """The seed of one rollout: 31 bits, which every sampler accepts."""
    return crc32(f"{run_seed}/{task_id}/{repeat}".encode()) >> 1


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
