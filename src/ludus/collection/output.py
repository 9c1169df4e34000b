"""The output files of a collection when it starts: whether they may be used, the journals, and run.json."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.errors import UserError
from ludus.runtime.redaction import masked
from ludus.store.files import Files
from ludus.store.journal import Journal
from ludus.store.run import check_identity, check_shard, describe, is_same_run, resumed, write_run
from ludus.store.turns import TurnJournal


@dataclass
class Output:
    """The journals of a run, opened. A run without output files has none."""

    rollouts: Journal | None = None
    failures: Journal | None = None
    turns: TurnJournal | None = None
    resumes: bool = False  #: whether the journals hold something that this run keeps
    stack: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Close the journals."""
        self.stack.close()


def open_output(files: Files, plan: CollectionPlan, run_identity: dict[str, Any], say: Callable[[str], None]) -> Output:
    """Open the journals, unless the files belong to another run. `say` takes sentences about the turns' journal."""
    options, chosen = plan.options, plan.options.files
    # Opening a journal repairs it, so files of other programs must be refused before that.
    journal = files.nonempty_journal()
    if journal is not None and (chosen.overwrite or not chosen.resume) and not files.run.exists():
        raise UserError(f"{journal} is not a collection: {files.run.name} is missing", "Choose another --output")
    if not chosen.overwrite and not chosen.force:
        check_shard(files, options.rows.shard)
    starts_anew = chosen.overwrite
    if not starts_anew and files.nothing_collected():
        starts_anew = not (chosen.resume and is_same_run(files, run_identity))
    resumes = journal is not None and not starts_anew
    if resumes and not chosen.resume:
        raise UserError(
            f"{chosen.output} already holds a collection",
            "Add --resume to continue it or --overwrite to replace it, or choose another --output",
        )
    if resumes and not chosen.force:
        check_identity(files, run_identity, accept_new_verifier=chosen.accept_new_verifier)
    with ExitStack() as stack:
        rollouts, failures = (stack.enter_context(Journal(path)) for path in (files.rollouts, files.failures))
        if starts_anew:
            rollouts.clear()
            failures.clear()
            files.turns.unlink(missing_ok=True)
        turns = stack.enter_context(TurnJournal(files.turns, say)) if plan.checkpoint else None
        return Output(rollouts, failures, turns, resumes, stack.pop_all())


def write_start(files: Files, plan: CollectionPlan, run_identity: dict[str, Any], tasks: int, *, resumes: bool) -> None:
    """Write run.json. A run that resumes keeps what describes its start. `tasks` are those of the shard."""
    described = describe(run_identity, _start_options(plan, tasks))
    if resumes:
        described = resumed(files.run, described, keep=not plan.options.files.force)
    write_run(files.run, described)


def _start_options(plan: CollectionPlan, tasks: int) -> dict[str, Any]:
    """The options in run.json."""
    options = plan.options
    concurrency = "auto" if options.engine.is_adaptive else plan.concurrency
    started: dict[str, Any] = {"repeats": options.play.repeats, "concurrency": concurrency}
    started |= {"workers": options.engine.workers or 1, "checkpoint": plan.checkpoint}
    if options.engine.ray is not None:
        started["ray"] = options.engine.ray
    started |= options.stop.limits
    started["pass_reward"] = {environment.name: environment.pass_reward for environment in plan.environments}
    started["reward_range"] = {environment.name: environment.reward_range for environment in plan.environments}
    started |= {"limit": options.rows.limit, "max_attempts": options.stop.max_attempts, "input": plan.rows.name}
    started |= _model_options(options)
    if options.rows.mix is not None:
        started["mix"] = options.rows.mix
    if options.rows.shard is not None:
        started["tasks"] = tasks  # `ludus merge` tells by it whether the shard is complete
    return started


def _model_options(options: Options) -> dict[str, Any]:
    """The spec and the settings of the model, so that it can be opened again; nothing if they hold a key."""
    play = options.play
    described = {"model": play.model, "model_settings": play.model_settings}
    can_be_shown = isinstance(play.model, str) and play.agent is None and masked(described) == described
    return described if can_be_shown else {}
