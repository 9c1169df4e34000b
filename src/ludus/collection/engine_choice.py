"""Which engine plays a collection: this process, worker processes of this machine, or a Ray cluster."""

from __future__ import annotations

from ludus.collection.collector import Engine, ThisProcess
from ludus.collection.engines.playing import PlaySettings
from ludus.collection.engines.ray_code import read_runtime_environment
from ludus.collection.engines.ray_engine import RayEngine
from ludus.collection.engines.setup import WorkerSetup
from ludus.collection.engines.workers import WorkerEngine
from ludus.collection.plan import CollectionPlan
from ludus.data.row_environments import RowEnvironments
from ludus.model import Model
from ludus.runtime.ray_cluster import import_ray


def engine_of(plan: CollectionPlan, environments: RowEnvironments) -> Engine:
    """The engine of a plan. Refuses what cannot be sent to other processes.

    They open the model from its spec where there is one; otherwise they get a copy of the opened model.
    """
    options, engine = plan.options, plan.options.engine
    if not engine.has_workers:
        return ThisProcess(PlaySettings(options, plan.model, plan.concurrency))
    opens_spec = options.play.agent is None and not isinstance(options.play.model, Model)
    sent = options if opens_spec else options.replace(model=plan.model)
    setup = WorkerSetup(environments.all_local(), sent, plan.checkpoint)
    if engine.ray is None:
        return WorkerEngine(setup, engine.workers or 1, plan.concurrency)
    import_ray()
    runtime = read_runtime_environment(engine.ray_env) if engine.ray_env is not None else {}
    return RayEngine(setup, engine.ray, engine.workers, plan.concurrency, runtime)
