"""The cost of a workplace_assistant session: CPU for six tool calls and a verdict, memory for 4,096 open sessions.

python benchmarks/workplace.py
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import rss_bytes, run_json

from ludus import Response
from ludus.environments.workplace_assistant.resources import WorkplaceAssistant

SESSIONS = 4096
ROUNDS = 300

#: Reads and writes in every part of the office, as in a rollout.
CALLS = [
    ("email_search_emails", {"query": "update", "date_min": "2023-11-01"}),
    ("calendar_search_events", {"time_min": "2023-11-15 00:00:00", "time_max": "2023-12-15 00:00:00"}),
    ("analytics_total_visits_count", {"time_min": "2023-10-01", "time_max": "2023-11-30"}),
    ("email_send_email", {"recipient": "somebody@example.com", "subject": "Plan", "body": "Shall we meet at noon?"}),
    ("calendar_delete_event", {"event_id": "00000007"}),
    ("customer_relationship_manager_update_customer", {"customer_id": "00000007", "field": "notes", "new_value": "-"}),
]
WRITES = [{"name": name, "arguments": json.dumps(values)} for name, values in CALLS[3:]]
ROW = {"responses_create_params": {"input": "Plan the week with somebody@example.com."}, "ground_truth": WRITES}


async def used(session: WorkplaceAssistant, task: Any) -> WorkplaceAssistant:
    """Open the session and run the calls."""
    await session.open(task)
    for name, values in CALLS:
        answer = await session.call(name, json.dumps(values))
        assert answer.startswith('{"output":'), answer
    return session


async def cpu(config: Any) -> dict[str, float]:
    """The median CPU time of one session from `open` to the verdict."""
    task, empty, times = WorkplaceAssistant.Task.model_validate(ROW), Response.of(), []
    async with WorkplaceAssistant.share(config) as tables:
        for _ in range(ROUNDS):
            began = time.process_time()
            session = await used(WorkplaceAssistant(config, tables), task)
            verdict = await session.verify(task, empty)
            times.append(time.process_time() - began)
            assert verdict.reward == 1.0, verdict
    return {"session_cpu_ms": statistics.median(times) * 1000}


async def memory(config: Any) -> dict[str, float]:
    """The memory of open sessions after their calls."""
    task = WorkplaceAssistant.Task.model_validate(ROW)
    async with WorkplaceAssistant.share(config) as tables:
        await (await used(WorkplaceAssistant(config, tables), task)).close()
        gc.collect()
        before = rss_bytes()
        sessions = [await used(WorkplaceAssistant(config, tables), task) for _ in range(SESSIONS)]
        return {"sessions": len(sessions), "growth_bytes": rss_bytes() - before}


def measured(tables: Path | None = None) -> dict[str, float]:
    """Measure both figures, each in a fresh process."""
    more = ["--tables", str(tables)] if tables else []
    found: dict[str, float] = {}
    for figure in ("cpu", "memory"):
        found |= run_json([sys.executable, __file__, "--figure", figure, *more])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="the folder of the public CSV files; default: the built-in tables")
    parser.add_argument("--figure", choices=["cpu", "memory"], help="measure one figure in this process")
    options = parser.parse_args()
    if options.figure is None:
        print(json.dumps(measured(options.tables)))
        return
    config = WorkplaceAssistant.Config(tables=options.tables)
    print(json.dumps(asyncio.run({"cpu": cpu, "memory": memory}[options.figure](config))))


if __name__ == "__main__":
    main()
