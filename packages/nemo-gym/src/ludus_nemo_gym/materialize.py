"""Expands the input into the rows that agents get: repeated, with the agent's name and indices.

`_ng_task_index` numbers the distinct lines, `_ng_rollout_index` the rollouts of one line. Repeats are adjacent.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError, did_you_mean
from ludus.prompt import PromptTemplate
from ludus.runtime.encoding import json_error
from ludus.store.lines import Source
from ludus_nemo_gym.agent_servers import agent_of
from ludus_nemo_gym.names import AGENTS
from ludus_nemo_gym.prompts import with_prompt

Row = dict[str, Any]
TASK, ROLLOUT = "_ng_task_index", "_ng_rollout_index"
DEFAULT = "_default"


@dataclass
class Expansion:
    """How rows are expanded. `repeats` is a number, or a number for each agent, with `_default` for the others.

    `prompt` builds the prompts of rows without one. With `keep_indices`, each row is one rollout and has its indices.
    """

    agent: str | None = None
    limit: int | None = None
    repeats: int | dict[str, int] = 1
    add_seed: bool = False
    params: Row = field(default_factory=dict)
    prompt: PromptTemplate | None = None
    keep_indices: bool = False

    def times(self, agent: str) -> int:
        """How many rollouts a row of an agent gets."""
        if isinstance(self.repeats, int):
            return self.repeats
        return self.repeats.get(agent, self.repeats.get(DEFAULT, 1))


def materialized(source: Path, expansion: Expansion, agents: dict[str, str] | None) -> Iterator[Row]:
    """The row of every rollout, as its agent gets it. Raises with file and line for a bad row.

    Without `agents`, rows may name any agent.
    """
    with Source(source) as opened:
        yield from _expanded(opened.lines, source, expansion, agents)


def _expanded(
    lines: Iterator[tuple[int, bytes]], source: Path, expansion: Expansion, agents: dict[str, str] | None
) -> Iterator[Row]:
    tasks: dict[bytes, int] = {}
    counts: Counter[int] = Counter()
    for number, line in itertools.islice(lines, expansion.limit):
        where = f"{source}:{number}"
        row = _row(where, line, expansion.prompt)
        name = agent_of(row) or expansion.agent
        if not name:
            raise UserError(f"{where}: the row names no agent", "Name one for all: +agent_name=NAME")
        if agents is not None and name not in agents:
            raise UserError(f"{where}: no agent {name} is running", did_you_mean(name, agents))
        task = row.get(TASK)
        if not isinstance(task, int):
            task = tasks.setdefault(blake2b(line.strip(), digest_size=16).digest(), len(tasks))
        row = {**row, "agent_ref": {"type": AGENTS, "name": name}}
        row["responses_create_params"] = {**row["responses_create_params"], **expansion.params}
        if expansion.keep_indices and isinstance(row.get(ROLLOUT), int):
            yield {**row, TASK: task}
            continue
        for _ in range(expansion.times(name)):
            repeat = counts[task]
            counts[task] += 1
            yield {**(_seeded(row, repeat) if expansion.add_seed else row), TASK: task, ROLLOUT: repeat}


def _seeded(row: Row, seed: int) -> Row:
    """The row with a seed in `metadata.extra_body`, which holds JSON as text."""
    params = row["responses_create_params"]
    metadata = params.get("metadata") or {}
    extra = metadata.get("extra_body")
    body = orjson.loads(extra) if isinstance(extra, str) and extra else extra or {}
    metadata = {**metadata, "extra_body": orjson.dumps({**body, "seed": seed}).decode()}
    return {**row, "responses_create_params": {**params, "metadata": metadata}}


def _row(where: str, line: bytes, prompt: PromptTemplate | None) -> Row:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: {json_error(error)}", "Each line must hold one JSON object") from error
    if prompt is not None and isinstance(row, dict):
        row = with_prompt(row, prompt, where)
    if not isinstance(row, dict) or not isinstance(row.get("responses_create_params"), dict):
        raise UserError(f"{where}: responses_create_params is missing", "Each row must hold the request to the model")
    return row
