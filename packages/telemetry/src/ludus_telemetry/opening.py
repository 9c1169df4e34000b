"""Opening what a run's options ask for: spans, a server of metrics, charts. Ludus finds it by its entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.collection.plan import CollectionPlan
from ludus_telemetry.telemetry import Telemetry
from ludus_telemetry.writers import RunFacts


def open_telemetry(plan: CollectionPlan) -> Telemetry:
    """What shall watch a run, opened. Ludus calls it for a run whose options ask for something."""
    options, wanted = plan.options, plan.options.telemetry
    names = ", ".join(environment.name for environment in plan.environments)
    output = Path(options.files.output) if options.files.output is not None else None
    settings: dict[str, Any] = {"environment": names, "model": plan.model.name}
    settings |= {"dataset": Path(plan.rows.name).name, "repeats": options.play.repeats}
    settings |= {"concurrency": plan.concurrency, "workers": options.engine.workers or 1}
    settings |= {"seed": options.play.seed, "output": str(output or "")}
    folder = output if output is None or output.suffix != ".jsonl" else output.parent
    facts = RunFacts(output.stem if output is not None else names, folder, settings)
    writers = [wanted.log_to] if isinstance(wanted.log_to, str) else wanted.log_to or ()
    return Telemetry(facts, plan.model if wanted.otel else None, wanted.metrics_port, writers)
