"""Which engine of several processes plays a collection: worker processes of this machine, or a Ray cluster."""

from __future__ import annotations

from typing import Any

from ludus.collection.collector import Engine
from ludus.collection.engines.ray_code import read_runtime_environment
from ludus.collection.engines.ray_engine import RayEngine
from ludus.collection.engines.setup import WorkerSetup
from ludus.collection.engines.workers import WorkerEngine
from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.data.row_environments import RowEnvironments
from ludus.model import Model
from ludus.runtime.ray_cluster import import_ray


def engine_of_options(
    plan: CollectionPlan, options: Options, environments: RowEnvironments, model: Model, model_settings: dict[str, Any]
) -> Engine:
    """The engine of several processes or of a Ray cluster. Refuses what cannot be sent to them.

    Its processes open the model from the spec in the options where there is one; `model` is the opened one.
    """
    given = options.model if options.agent is None and not isinstance(options.model, Model) else model
    setup = WorkerSetup(
        environments=environments.all_local(),
        model=given,
        model_settings={} if isinstance(given, Model) else model_settings,
        resources_url=options.resources,
        agent_url=options.agent,
        repeats=plan.repeats,
        seed=plan.seed,
        tokens=plan.tokens,
        adaptive=plan.adaptive,
        turn=options.turn,
        checkpoint=plan.checkpoint,
        stragglers=plan.stragglers,
        chaos=plan.chaos,
        times_steps=plan.times_steps,
    )
    if options.ray is None:
        return WorkerEngine(setup, options.workers or 1, plan.concurrency)
    import_ray()
    runtime = read_runtime_environment(options.ray_env) if options.ray_env is not None else {}
    return RayEngine(setup, options.ray, options.workers, plan.concurrency, runtime)
