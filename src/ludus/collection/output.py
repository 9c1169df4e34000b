"""The output files of a collection when it starts: whether they may be used, the journals, and run.json."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.errors import UserError
from ludus.runtime.redaction import masked
from ludus.store.journal import Journal
from ludus.store.run import Files, check_identity, check_shard, describe, is_same_run, with_options, write_run


def open_journals(
    files: Files, options: Options, run_identity: dict[str, Any], stack: ExitStack
) -> tuple[list[Journal], bool]:
    """The journals, opened on the stack, and whether this run resumes them: they hold something that it keeps."""
    # Opening a journal repairs it, so files of other programs must be refused before that.
    found = files.nonempty_journal()
    if found is not None and (options.overwrite or not options.resume) and not files.run.exists():
        raise UserError(f"{found} is not a collection: {files.run.name} is missing", "Choose another --output")
    if not options.overwrite and not options.force:
        check_shard(files, options.shard)
    starts_anew = options.overwrite
    if not starts_anew and files.nothing_collected():
        starts_anew = not (options.resume and is_same_run(files.run, run_identity))
    resumes = found is not None and not starts_anew
    if resumes and not options.resume:
        raise UserError(
            f"{options.output} already holds a collection",
            "Add --resume to continue it or --overwrite to replace it, or choose another --output",
        )
    if resumes and not options.force:
        check_identity(files.run, run_identity)
    journals = [stack.enter_context(Journal(path)) for path in (files.rollouts, files.failures)]
    if starts_anew:
        for journal in journals:
            journal.clear()
        files.turns.unlink(missing_ok=True)
    return journals, resumes


def start_options(
    options: Options, plan: CollectionPlan, input_name: str, tasks: int, model_settings: dict[str, Any]
) -> dict[str, Any]:
    """The options in run.json. `tasks` is the number of tasks of the shard."""
    started: dict[str, Any] = {"repeats": plan.repeats, "concurrency": plan.concurrency}
    started |= {"workers": options.workers or 1, "checkpoint": plan.checkpoint}
    if options.ray is not None:
        started["ray"] = options.ray
    started |= {name: value for name, value in vars(plan.stragglers).items() if value is not None}
    started["pass_reward"] = {each.name: each.pass_reward for each in plan.environments}
    started["reward_range"] = {each.name: each.reward_range for each in plan.environments}
    started |= {"limit": options.limit, "max_attempts": plan.max_attempts, "input": input_name}
    started |= _model_options(options, model_settings)
    if options.mix is not None:
        started["mix"] = options.mix
    if options.shard is not None:
        started["tasks"] = tasks  # `ludus merge` tells by it whether the shard is complete
    return started


def write_start(path: Path, run_identity: dict[str, Any], options: dict[str, Any], *, resumes: bool) -> None:
    """Write run.json. A run that resumes keeps the identity that is there."""
    write_run(path, with_options(path, options) if resumes else describe(run_identity, options))


def _model_options(options: Options, model_settings: dict[str, Any]) -> dict[str, Any]:
    """The spec and the settings of the model, so that it can be opened again; nothing if they hold a key."""
    given = {"model": options.model, "model_settings": model_settings}
    can_be_shown = isinstance(options.model, str) and options.agent is None and masked(given) == given
    return given if can_be_shown else {}
