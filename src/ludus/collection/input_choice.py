"""Where the rows of a collection come from: a file, the datasets of its environments, or recorded rollouts."""

from __future__ import annotations

from ludus.collection.branching import Branches
from ludus.collection.options import Options
from ludus.data.row_environments import RowEnvironments
from ludus.data.rows import Rows
from ludus.errors import UserError


def input_rows(options: Options, environments: RowEnvironments) -> Rows:
    """The rows that the options name. Options that contradict each other are an error."""
    if options.input is not None and options.dataset is not None:
        raise UserError("both --input and --dataset are given", "Leave one of them out")
    if options.mix is not None and (options.input is not None or options.branch is not None):
        hint = "Mix the file with ludus data prepare --mix, or leave it out"
        raise UserError("--mix weighs the datasets of environments, and the rows come from a file", hint)
    if options.branch is not None or options.turn is not None:
        if options.branch is None or options.turn is None:
            raise UserError("--branch FILE and --turn K need each other", "Example: --branch RUN --turn 2")
        if options.input is not None or options.dataset is not None:
            raise UserError("--branch takes its tasks from recorded rollouts", "Leave --input and --dataset out")
        return Branches(options.branch, options.turn, environments.task, options.limit)
    if options.input is None:
        return environments.rows(options.dataset, options.limit, options.seed, options.mix)
    return Rows(options.input, environments.task, options.limit, options.seed, environments.fill)
