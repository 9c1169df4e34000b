"""Opening what a run's options ask for: spans, a server of metrics, charts. Attached by the calls and the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.collection.plan import CollectionPlan

if TYPE_CHECKING:
    from ludus.telemetry.telemetry import Telemetry


def open_telemetry(plan: CollectionPlan) -> Telemetry | None:
    """What shall watch a run, opened; None if its options ask for nothing."""
    options, wanted = plan.options, plan.options.telemetry
    if not wanted.otel and wanted.metrics_port is None and not wanted.log_to:
        return None
    from ludus.telemetry.telemetry import Telemetry  # imported here: most runs have none
    from ludus.telemetry.writers import RunFacts

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
