"""Where the rows of a collection come from: a file, the datasets of its environments, or recorded rollouts."""

from __future__ import annotations

from ludus.collection.branching import Branches
from ludus.collection.options import Options
from ludus.data.row_environments import RowEnvironments
from ludus.data.rows import Rows
from ludus.errors import UserError


def input_rows(options: Options, environments: RowEnvironments) -> Rows:
    """The rows that the options name. Options that contradict each other are an error."""
    chosen, seed = options.rows, options.play.seed
    if chosen.input is not None and chosen.dataset is not None:
        raise UserError("both --input and --dataset are given", "Leave one of them out")
    if chosen.mix is not None and (chosen.input is not None or chosen.branch is not None):
        hint = "Mix the file with ludus data prepare --mix, or leave it out"
        raise UserError("--mix weighs the datasets of environments, and the rows come from a file", hint)
    if chosen.branch is not None or chosen.turn is not None:
        if chosen.branch is None or chosen.turn is None:
            raise UserError("--branch FILE and --turn K need each other", "Example: --branch RUN --turn 2")
        if chosen.input is not None or chosen.dataset is not None:
            raise UserError("--branch takes its tasks from recorded rollouts", "Leave --input and --dataset out")
        return Branches(chosen.branch, chosen.turn, environments.task, chosen.limit)
    if chosen.input is None:
        return environments.rows(chosen.dataset, chosen.limit, seed, chosen.mix)
    return Rows(chosen.input, environments.task, chosen.limit, seed, environments.fill)
