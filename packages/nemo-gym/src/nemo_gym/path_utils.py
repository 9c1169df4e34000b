"""Where the files of a collection lie, beside its rollouts, and where relative paths are searched."""

from __future__ import annotations

from pathlib import Path

from nemo_gym import component_search_roots


def failures_path_for(output_fpath: Path) -> Path:
    """The file of failed rollouts."""
    return _beside(output_fpath, "_failures.jsonl")


def aggregate_metrics_path_for(output_fpath: Path) -> Path:
    """The file of metrics."""
    return _beside(output_fpath, "_aggregate_metrics.json")


def materialized_path_for(output_fpath: Path) -> Path:
    """The file of all rows as they are sent to their agents."""
    return _beside(output_fpath, "_materialized_inputs.jsonl")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.stem + ending)


def find_path(name: str | Path) -> Path | None:
    """A file or folder by its path: absolute, or relative to NEMO_GYM_EXTRA_ROOTS, the working directory or the
    checkout.
    """
    path = Path(name).expanduser()
    return next((root / path for root in component_search_roots() if (root / path).exists()), None)
