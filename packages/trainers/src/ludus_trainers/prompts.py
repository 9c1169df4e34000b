"""The prompts of an environment as the data of trainers, without any trainer installed. Each row carries its task."""

from __future__ import annotations

import json
from typing import Any, Unpack

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.train.rows import messages_of, rows_in
from ludus_trainers.rows import ROW


def openrlhf_rows(environment: Environments = None, **options: Unpack[CollectArguments]) -> list[dict[str, Any]]:
    """OpenRLHF's rows, for `--input_key input --label_key label`."""
    rows = rows_in(environment, **options)
    return [{"input": messages_of(row), "label": json.dumps(row)} for _, row in rows]


def areal_rows(environment: Environments = None, **options: Unpack[CollectArguments]) -> list[dict[str, Any]]:
    """AReaL's items."""
    rows = rows_in(environment, **options)
    return [{"messages": messages_of(row), ROW: json.dumps(row)} for _, row in rows]


def slime_rows(environment: Environments = None, **options: Unpack[CollectArguments]) -> list[dict[str, Any]]:
    """slime's rows, for `--input-key prompt --label-key label --metadata-key metadata`."""
    rows = rows_in(environment, **options)
    return [{"prompt": messages_of(row), "label": task_id, "metadata": {ROW: row}} for task_id, row in rows]
