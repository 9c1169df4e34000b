"""A time budget for a whole program, counted from the import of this module, so that loading counts too."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from typing import Any

BEGAN = time.monotonic()


def elapsed() -> float:
    """Seconds since the program began."""
    return time.monotonic() - BEGAN


class Budget:
    """Divides the seconds of a program among its stages by their weights.

    Each stage gets its share of what is left when it begins, so a stage that needs less leaves the rest to the others.
    Without `seconds` no stage has a limit. A twentieth is kept back, and a program that is still running when all
    seconds are over is ended with the exit code 124: its files hold the stages that were complete.
    """

    def __init__(self, seconds: float | None, stages: list[tuple[str, float]]) -> None:
        self._seconds, self._stages = seconds, stages
        if seconds is not None:
            timer = threading.Timer(max(0.0, seconds - elapsed()), _end, [seconds])
            timer.daemon = True
            timer.start()

    def stage(self, name: str) -> float:
        """Begin the next stage. Returns its deadline, in seconds since the program began."""
        (expected, weight), *rest = self._stages
        if name != expected:
            raise ValueError(f"the next stage is {expected!r}, not {name!r}")
        self._stages = rest
        if self._seconds is None:
            return math.inf
        left = max(0.0, 0.95 * self._seconds - elapsed())
        return elapsed() + left * weight / (weight + sum(other for _, other in rest))


def stop_at(deadline: float) -> Any:
    """A callback that ends a trainer after the step in which its deadline passes."""
    from transformers import TrainerCallback

    class StopAt(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if elapsed() >= deadline:
                control.should_training_stop = True

    return StopAt()


def _end(seconds: float) -> None:
    print(f"error: the {seconds:g} seconds are over. Give more with --seconds", file=sys.stderr, flush=True)
    os._exit(124)
