"""Two collections compared by their metrics (`gym eval compare`): a baseline and a candidate.

Each is read from its `X_aggregate_metrics.json`. The report says for every key metric of every agent what both had and
the difference. It makes no claim about chance: `ludus compare` does, because it reads the rollouts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.store.statistics import finite_number

REPORT = "compare_report"


def compare_runs(baseline: Path, candidate: Path) -> dict[str, Any]:
    """The key metrics of both files, by agent: what each had, and candidate minus baseline."""
    before, after = _key_metrics(baseline), _key_metrics(candidate)
    agents: dict[str, dict[str, Any]] = {}
    for agent in sorted(before.keys() | after.keys()):
        old, new = before.get(agent, {}), after.get(agent, {})
        rows = {name: _row(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())}
        agents[agent] = {name: row for name, row in rows.items() if row}
    return {"baseline": str(baseline), "candidate": str(candidate), "agents": agents}


def write_report(report: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write `compare_report.md` and `compare_report.json` into a folder."""
    lines = [f"# {report['candidate']} against {report['baseline']}", ""]
    for agent, metrics in report["agents"].items():
        lines += [f"## {agent}", "", "| metric | baseline | candidate | difference |", "| --- | --- | --- | --- |"]
        parts = ("baseline", "candidate", "difference")
        lines += [
            f"| {name} | " + " | ".join(_shown(row[part]) for part in parts) + " |" for name, row in metrics.items()
        ]
        lines.append("")
    folder.mkdir(parents=True, exist_ok=True)
    text, data = folder / f"{REPORT}.md", folder / f"{REPORT}.json"
    text.write_text("\n".join(lines), encoding="utf-8")
    data.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return text, data


def _key_metrics(path: Path) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "Name a file X_aggregate_metrics.json") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}", "Name a file X_aggregate_metrics.json") from error
    metrics: dict[str, dict[str, Any]] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        reference = entry.get("agent_ref") if isinstance(entry, dict) else None
        figures = entry.get("key_metrics") if isinstance(entry, dict) else None
        if not isinstance(figures, dict):
            raise UserError(f"{path} has an entry without key_metrics", "Name a file X_aggregate_metrics.json")
        metrics[str(reference.get("name")) if isinstance(reference, dict) else "all"] = figures
    return metrics


def _row(old: Any, new: Any) -> dict[str, float | None] | None:
    """A metric of both runs; None for one that is not a number in either."""
    before, after = finite_number(old), finite_number(new)
    if before is None and after is None:
        return None
    difference = after - before if before is not None and after is not None else None
    return {"baseline": before, "candidate": after, "difference": difference}


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
