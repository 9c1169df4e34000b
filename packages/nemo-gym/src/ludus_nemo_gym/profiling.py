"""The reward profile: for each task of a collection, how often it was tried and what its rollouts earned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError, missing_package
from ludus.runtime.encoding import encode
from ludus.serve.aggregate import aggregate
from ludus.store.drafts import draft, write_whole
from ludus_nemo_gym.agent_metrics import Numbers, agent_metrics
from ludus_nemo_gym.agent_servers import agent_of
from ludus_nemo_gym.collecting import read_rollouts
from ludus_nemo_gym.materialize import ROLLOUT, TASK

Row = dict[str, Any]
Key = tuple[str, int]


def write_profile(inputs: Path, rollouts: Path, *, partial: bool = False) -> list[Path]:
    """Write `X_reward_profiling.jsonl` and `X_agent_metrics.json` beside the rollouts. Returns their paths."""
    samples, expected = _tasks(inputs)
    infos: dict[Key, list[Row]] = {}
    for row in read_rollouts(rollouts):
        infos.setdefault((agent_of(row), row[TASK]), []).append({ROLLOUT: row[ROLLOUT], "reward": row.get("reward")})
    missing = sum(times - len(infos.get(key, [])) for key, times in expected.items())
    if missing and not partial:
        hint = "Collect them with +resume_from_cache=true, or add +allow_partial_rollouts=true"
        raise UserError(f"{rollouts} lacks {missing} of {expected.total()} rollouts", hint)
    rows = Numbers(read_rollouts(rollouts)).by_agent
    metrics = {name: aggregate(played) for name, played in rows.items()}
    groups = {
        (name, task[TASK]): task for name, by_agent in metrics.items() for task in by_agent["group_level_metrics"]
    }
    profile, agents = (
        rollouts.with_name(f"{rollouts.stem}_{name}") for name in ("reward_profiling.jsonl", "agent_metrics.json")
    )
    with draft(profile, "Make its folder writable") as file:
        for key, sample in samples.items():
            played, times = infos.get(key, []), expected[key]
            file.write(encode({**groups.get(key, {}), **_counts(sample, played, times)}) + b"\n")
    entries = [agent_metrics(name, rows[name], by_agent) for name, by_agent in metrics.items()]
    write_whole(agents, orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    return [profile, agents]


def show_profile_of(rollouts: Path) -> None:
    """Print the tables of `ludus profile`. A row without a reward has no place in them, and is named instead."""
    from ludus.cli.screen import clean, stdout_console

    try:
        from ludus_bench.profile.profile import Profile
        from ludus_bench.profile_view import show_profile
    except ModuleNotFoundError:
        print(missing_package("ludus profile", "bench"))
        return
    try:
        summary = Profile([rollouts]).summary()
    except UserError as error:
        print(f"no profile: {clean(str(error))}")
        return
    show_profile(stdout_console(), summary)


def _tasks(inputs: Path) -> tuple[dict[Key, Row], Counter[Key]]:
    """The row of each task, and how many rollouts it should have."""
    samples: dict[Key, Row] = {}
    expected: Counter[Key] = Counter()
    for row in read_rollouts(inputs):
        key = (agent_of(row), row[TASK])
        samples.setdefault(key, {name: value for name, value in row.items() if name != ROLLOUT})
        expected[key] += 1
    return samples, expected


def _counts(sample: Row, played: list[Row], times: int) -> Row:
    return {
        TASK: sample[TASK],
        "sample": sample,
        "num_rollouts": len(played),
        "expected_num_rollouts": times,
        "missing_num_rollouts": times - len(played),
        "reward_profile_completion_pct": 100 * len(played) / times,
        "rollout_infos": played,
    }
