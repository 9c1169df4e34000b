"""Merges the outputs of several collections, such as the shards of one that ran on several machines."""

from __future__ import annotations

import glob
from hashlib import blake2b
from pathlib import Path

import orjson

from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.serve.aggregate import aggregate
from ludus.store.drafts import draft, write_whole
from ludus_nemo_gym.agent_metrics import Numbers, agent_metrics
from ludus_nemo_gym.agent_servers import agent_of
from ludus_nemo_gym.collecting import OutputFiles, read_rollouts
from ludus_nemo_gym.materialize import ROLLOUT, TASK

#: The files that a collection writes beside its rollouts.
_BESIDE = ("_failures.jsonl", "_materialized_inputs.jsonl", "_reward_profiling.jsonl")


def merge_shards(patterns: str, output: Path) -> OutputFiles:
    """Write all rollouts of the files that match one of the comma-separated patterns, and their metrics."""
    shards = _shards(patterns, output)
    files = OutputFiles(output)
    seen: dict[tuple[str, int, int], bytes] = {}
    with draft(output, "Choose another --output") as merged:
        for shard in shards:
            for row in read_rollouts(shard):
                key = (agent_of(row), row[TASK], row[ROLLOUT])
                prompt = blake2b(encode(row.get("responses_create_params")), digest_size=16).digest()
                if key not in seen:
                    seen[key] = prompt
                    merged.write(encode(row) + b"\n")
                elif seen[key] != prompt:
                    problem = (
                        f"{shard}: rollout {key[2]} of task {key[1]} of {key[0]} has another prompt than elsewhere"
                    )
                    raise UserError(problem, "Merge only the shards of one input: their rows have distinct indices")
    rows = Numbers(read_rollouts(output)).by_agent
    metrics = [agent_metrics(name, played, aggregate(played)) for name, played in rows.items()]
    write_whole(files.metrics, orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")
    return files


def _shards(patterns: str, output: Path) -> list[Path]:
    files = {Path(name) for pattern in patterns.split(",") for name in glob.glob(pattern.strip(), recursive=True)}
    shards = sorted(file for file in files if file != output and not file.name.endswith(_BESIDE))
    if not shards:
        raise UserError(f"no file matches {patterns}", "Example: --input-glob 'results/shard_*.jsonl'")
    return shards
