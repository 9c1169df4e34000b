"""One search over all runs of a folder: how many rollouts of each run match, and the first of them."""

from __future__ import annotations

from typing import Any

from ludus.errors import UserError
from ludus.view.experiment import runs_below, short_name
from ludus.view.listing import rollouts_page
from ludus.view.live import LiveRuns
from ludus.view.query import parse_query

#: The most rollouts that are listed of one run, and of all runs.
OF_ONE_RUN = 5
OF_ALL_RUNS = 200


def search_payload(runs: LiveRuns, at: str, query: str) -> dict[str, Any]:
    """The matches of each run that has some, the newest run first. A run whose index is being rebuilt is left out."""
    parse_query(query)  # a mistake in the query is one error, not one for each run
    lines, total, listed, waiting = list[dict[str, Any]](), 0, 0, 0
    for run in sorted(runs_below(runs, at), key=lambda run: str(run.run.described().get("started")), reverse=True):
        try:
            with run.index.reading() as database:
                page = rollouts_page(database, query, "order", 0, max(1, min(OF_ONE_RUN, OF_ALL_RUNS - listed)))
                progress = run.index.progress(database)
        except UserError:
            waiting += 1
            continue
        waiting += progress["texts"] < progress["bytes"]
        if page["total"]:
            total, listed = total + page["total"], listed + len(page["rollouts"])
            name = short_name(run.run.name, at)
            lines.append({"key": run.run.key, "name": name, "total": page["total"], "rollouts": page["rollouts"]})
    return {"at": at, "query": query, "total": total, "runs": lines, "waiting": waiting}
