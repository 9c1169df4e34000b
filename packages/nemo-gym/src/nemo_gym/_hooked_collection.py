"""A collection whose rollouts an author's `RolloutCollectionHelper` plays: one that overrides a hook.

Its files are those of `gym eval run`. Failed rollouts are in the file of failures only, without a reward.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import orjson
from ludus_nemo_gym.agent_metrics import Numbers, agent_metrics
from ludus_nemo_gym.collecting import CollectOptions, OutputFiles
from ludus_nemo_gym.materialize import materialized

from ludus.runtime.encoding import encode
from ludus.serve.aggregate import aggregate
from ludus.store.drafts import write_whole
from nemo_gym._environment_routes import environment_servers_by_agent
from nemo_gym._failed_rows import NG_FAILURE_CLASS_KEY, NG_NO_PERSIST_KEY
from nemo_gym._results import Row
from nemo_gym.server_utils import get_response_json, raise_for_status

Play = Callable[[list[Row]], Iterable[Awaitable[tuple[Row, Row]]]]

#: Fields of a row that its result gets.
_STAMPS = "_ng_task_index _ng_rollout_index _ng_attempt_index _ng_rollout_id agent_ref skills_ref".split()
#: Statuses of a request that did not reach its agent.
_UNREACHED = (None, 429, 502, 503, 504)
_MOST_BODY = 2000


async def play_by_name(client: Any, row: Row) -> tuple[Row, Row]:
    """Send a row to the environment server in front of its agent, or to the agent if there is none.

    An error has the row as its attribute `row`.
    """
    agent = row["agent_ref"]["name"]
    tree = getattr(client, "global_config_dict", None)
    fronts = environment_servers_by_agent(tree).get(agent) if isinstance(tree, Mapping) else None
    try:
        reply = await client.post(server_name=fronts[0] if fronts else agent, url_path="/run", json=row)
        await raise_for_status(reply)
        return row, await get_response_json(reply)
    except Exception as error:
        error.row = row  # type: ignore[attr-defined]
        raise


async def collect_with_hooks(options: CollectOptions, play: Play, observe: Callable[[Row, Row], Any]) -> list[Row]:
    """Play the rows of a file, write the collection's files, and return the rollouts in completion order.

    `observe(row, result)` may add to a result. An error without the attribute `row` is raised.
    """
    rows = list(materialized(options.input, options.expansion, None))
    files = OutputFiles(options.output)
    files.inputs.parent.mkdir(parents=True, exist_ok=True)
    write_whole(files.inputs, b"".join(encode(row) + b"\n" for row in rows))
    rollouts, failures = list[Row](), list[Row]()
    for played in play(rows):
        try:
            row, result = await played
        except Exception as error:
            if not hasattr(error, "row"):
                raise
            failures.append({**error.row, **_failure(error)})
            continue
        result |= {key: row[key] for key in _STAMPS if key in row}
        if result.get(NG_FAILURE_CLASS_KEY):
            failures += [] if result.get(NG_NO_PERSIST_KEY) else [result]
        elif not result.get(NG_NO_PERSIST_KEY):
            observe(row, result)
            rollouts.append(result)
    write_whole(files.rollouts, b"".join(encode(row) + b"\n" for row in rollouts))
    if failures:
        write_whole(files.failures, b"".join(encode(row) + b"\n" for row in failures))
    if options.aggregate:
        _write_metrics(files, rollouts)
    return rollouts


def _write_metrics(files: OutputFiles, rollouts: list[Row]) -> None:
    numbers = Numbers()
    for row in rollouts:
        numbers.add(row)
    metrics = [agent_metrics(name, played, aggregate(played)) for name, played in numbers.by_agent.items()]
    write_whole(files.metrics, orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")


def _failure(error: Exception) -> Row:
    """The fields of a rollout whose request failed."""
    status = getattr(error, "status", None)
    body = getattr(error, "response_content", None)
    fields = {
        NG_FAILURE_CLASS_KEY: "agent_request_failed" if status in _UNREACHED else "agent_run_error",
        "_ng_failure_type": type(error).__name__,
        "_ng_failure_message": str(error),
        "_ng_failure_http_status": status,
        "_ng_failure_response_body": body.decode("utf-8", "replace")[:_MOST_BODY] if isinstance(body, bytes) else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
