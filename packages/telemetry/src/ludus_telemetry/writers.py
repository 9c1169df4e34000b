"""Charts of a collection in experiment trackers: Weights & Biases, MLflow and TensorBoard.

A writer is opened before the run, so that mistakes show before anything is spent. During the run, a thread writes
values every few seconds.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ludus.errors import UserError, did_you_mean, missing_extra
from ludus.runtime.keys import without_keys

T = TypeVar("T")

PROJECT = "ludus"
_USER_OF_A_URL = re.compile(r"//[^/@\s]{1,500}@")
#: Timeout for MLflow's server before the run. Its client would retry for four to sixteen minutes.
OPEN_WITHIN = 60.0
#: Timeout for Weights & Biases to upload the last values, also when Python exits. Less than `CLOSE_WITHIN`.
UPLOAD_WITHIN = 20.0


@dataclass(frozen=True)
class RunFacts:
    """What a tracker learns about a run: its name, its folder if it has one, and its settings."""

    name: str
    folder: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)


class ChartWriter(Protocol):
    """Writes values over time."""

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Write the values of one moment."""

    def close(self, *, completed: bool) -> None:
        """Finish the run of the tracker. `completed` is false after an error or a cancel."""


def open_writer(spec: str, facts: RunFacts) -> ChartWriter:
    """The writer that a spec names: `wandb`, `mlflow` or `tensorboard`, with an argument after a colon."""
    name, _, argument = spec.partition(":")
    if name not in WRITERS:
        raise UserError(f"--log-to {spec:.60}: there is no writer {name:.40}", did_you_mean(name, WRITERS))
    try:
        return WRITERS[name](argument, facts)
    except UserError:
        raise
    except Exception as error:  # the trackers raise errors of many classes
        raise UserError(f"--log-to {name}: {reason(error)[:600]}") from error


def reason(error: Exception) -> str:
    """What a tracker's client raised, as one line without keys and without the password of a URL."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {_USER_OF_A_URL.sub('//', without_keys(line))}"


class WandbWriter:
    """Writes to Weights & Biases, set by the WANDB_* variables. The argument is the project."""

    def __init__(self, project: str, facts: RunFacts) -> None:
        try:
            import wandb
        except ImportError:
            raise missing_extra("wandb", "wandb", package="telemetry") from None
        settings = wandb.Settings(console="off")  # our progress line is not for their log
        if hasattr(settings, "finish_timeout") and not _set("WANDB_FINISH_TIMEOUT"):  # older clients have no timeout
            settings.finish_timeout, settings.finish_timeout_raises = UPLOAD_WITHIN, True
        project = project or _set("WANDB_PROJECT") or PROJECT
        self._run = wandb.init(project=project, name=facts.name, config=facts.settings, settings=settings)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Log the values of one moment."""
        self._run.log(scalars, step=step)

    def close(self, *, completed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=0 if completed else 1)


_MLFLOW_HINT = (
    "Name a server that runs: mlflow:http://HOST:5000; or a folder: MLFLOW_ALLOW_FILE_STORE=true and "
    "mlflow:file:///PATH; a database (sqlite:) needs: pip install mlflow"
)


class MlflowWriter:
    """Writes to MLflow. The argument is the tracking URI; without one, MLFLOW_TRACKING_URI or MLflow's default."""

    def __init__(self, uri: str, facts: RunFacts) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric as MlflowMetric
            from mlflow.entities import Param
        except ImportError:
            raise missing_extra("mlflow-skinny", "mlflow", package="telemetry") from None
        self._metric = MlflowMetric

        def start() -> tuple[Any, str]:
            client = MlflowClient(tracking_uri=uri or None)
            experiment = _set("MLFLOW_EXPERIMENT_NAME") or PROJECT
            known = client.get_experiment_by_name(experiment)
            number = known.experiment_id if known is not None else client.create_experiment(experiment)
            run_id = client.create_run(number, run_name=facts.name).info.run_id
            client.log_batch(run_id, params=[Param(key, str(value)[:500]) for key, value in facts.settings.items()])
            return client, run_id

        try:
            self._client, self._run_id = _within(OPEN_WITHIN, start)
        except Exception as error:  # paragraphs about what MLflow supports
            first = reason(error).partition(". ")[0][:300].rstrip(".")
            raise UserError(f"--log-to mlflow: {first}", _MLFLOW_HINT) from error

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Log the values of one moment."""
        now = int(time.time() * 1000)
        self._client.log_batch(self._run_id, [self._metric(name, value, now, step) for name, value in scalars.items()])

    def close(self, *, completed: bool) -> None:
        """Finish the run."""
        self._client.set_terminated(self._run_id, "FINISHED" if completed else "FAILED")


class TensorboardWriter:
    """Writes event files. The argument is their folder; without one, `tensorboard` in the collection's folder."""

    def __init__(self, folder: str, facts: RunFacts) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise missing_extra("tensorboardX", "tensorboard", package="telemetry") from None
        if not folder and facts.folder is None:
            raise UserError("--log-to tensorboard has no folder", "Add --output DIR, or write --log-to tensorboard:DIR")
        place = Path(folder) / facts.name if folder else Path(str(facts.folder)) / "tensorboard"
        # flush() skips values that are still queued; a thread flushes them, by default every two minutes. Without the
        # suffix, two runs that start in the same second would share a file.
        self._writer = SummaryWriter(str(place), flush_secs=1, filename_suffix=f".{secrets.token_hex(4)}")
        self._writer.add_text("settings", "\n".join(f"    {key}: {value}" for key, value in facts.settings.items()))

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Add the values of one moment."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self, *, completed: bool) -> None:
        """Close the file."""
        self._writer.close()


WRITERS: dict[str, Callable[[str, RunFacts], ChartWriter]] = {
    "wandb": WandbWriter,
    "mlflow": MlflowWriter,
    "tensorboard": TensorboardWriter,
}


def _set(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _within(seconds: float, work: Callable[[], T]) -> T:
    """The result of blocking work, or a TimeoutError; then the work is abandoned on its daemon thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="ludus-tracker", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
