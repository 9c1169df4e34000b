"""verl's data and reward function, without verl: Parquet rows, and a score for a text that another loop wrote.

python -c "from ludus_trainers.verl_data import write_parquet; write_parquet('train.parquet', 'mcqa')"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Unpack

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.errors import UserError, missing_extra
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.models.transformers_prompt import items_of
from ludus.response import Response
from ludus.store.drafts import write_whole
from ludus.train.policy import GroupPolicy
from ludus.train.rows import messages_of, rows_in, with_sampling
from ludus_trainers.player import NotTrainable, RolloutPlayer
from ludus_trainers.rows import ROW, carried_row
from ludus_trainers.token_engine import ENGINE_EXTRA


def verl_rows(environment: Environments = None, **options: Unpack[CollectArguments]) -> list[dict[str, Any]]:
    """verl's rows of the tasks of an environment. `options` are those of `ludus.collect`, such as `input`."""
    name = environment if isinstance(environment, str) else "ludus"
    return [
        {
            "data_source": f"ludus/{name}",
            "prompt": messages_of(row),
            "ability": name,
            "reward_model": {"style": "rule", "ground_truth": task_id},
            "extra_info": {"index": number, ROW: json.dumps(row)},
            "agent_name": "ludus",
            "env_class": "ludus",  # SkyRL's column
        }
        for number, (task_id, row) in enumerate(rows_in(environment, **options))
    ]


def write_parquet(path: str | Path, environment: Environments = None, **options: Unpack[CollectArguments]) -> int:
    """Write verl's rows as Parquet, and return how many."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("Parquet", "data") from error
    rows = verl_rows(environment, **options)
    if not rows:
        raise UserError("the environment has no rows", "Pass input=FILE")
    made = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows), made)
    write_whole(Path(path), made.getvalue().to_pybytes())
    return len(rows)


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    environment: Environments = None,
    **_: Any,
) -> dict[str, Any]:
    """verl's reward function, for texts of a loop other than ours: the environment's verdict about one answer.

    Name it in `custom_reward_function.path` and `name`, and the environment in `reward_kwargs.environment`; it is the
    part of `data_source` after the slash otherwise. A failed or masked verdict raises: it is never a score of 0.
    """

    def respond(request: Request) -> Response:
        text = str(request.params[ENGINE_EXTRA]["text"])
        return Response.of(*items_of(text, "", key="solution"), model="solution")

    row = with_sampling(carried_row(extra_info, "extra_info of a row"), engine_extra={"text": solution_str})
    named = environment or data_source.partition("/")[2]
    policy = GroupPolicy(size=1, replacements=0)
    player = RolloutPlayer(named, model=ScriptedModel(respond), policy=policy, tokens=False)
    try:
        group = await player.group(row, 1)
    finally:
        await player.close()
    member = next(iter(group.trainable), None)
    if member is None or member.reward is None:
        causes = [str(member.failure) for member in group.failures] + [
            f"masked: {member.mask}" for member in group.members
        ]
        raise NotTrainable(f"the answer to task {ground_truth} has no reward: {'; '.join(causes) or 'no verdict'}")
    return {"score": float(member.reward), **member.components}
