"""Training steps in which every rollout failed: their cause is logged, and after a few of them training stops."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ludus.errors import Failure, UserError

#: Training stops after so many steps in a row in which every rollout failed.
MOST_FAILED_STEPS = 3

_LOG = logging.getLogger(__name__)


class FailedSteps:
    """Counts the steps in a row in which every rollout failed."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def add(self, failures: Sequence[Failure | None], played: int) -> None:
        """A step has ended: its failures, and how many rollouts did not fail. Raises a `UserError` to stop."""
        if not failures or played:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        cause = f"all {len(failures)} rollouts of a step failed. The last: {failures[-1]}"
        if self._in_a_row == MOST_FAILED_STEPS:
            raise UserError(f"{cause}. So did those of the last {MOST_FAILED_STEPS - 1} steps", "Fix the environment")
        _LOG.warning("%s", cause)
