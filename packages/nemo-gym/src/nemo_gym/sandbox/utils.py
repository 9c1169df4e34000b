"""Small helpers of code that runs sandboxes: names of images, and limits on the threads of programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: The variables by which libraries and build tools learn how many threads or jobs they may start.
CPU_CAP_ENV_VARS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "TOKIO_WORKER_THREADS",
    "GOMAXPROCS",
    "JULIA_NUM_THREADS",
    "CARGO_BUILD_JOBS",
    "CMAKE_BUILD_PARALLEL_LEVEL",
    "MAX_JOBS",
)


def cpu_cap_env(cpu: float | None) -> dict[str, str]:
    """Every name of `CPU_CAP_ENV_VARS` with the number of whole cores, at least 1. Empty for None.

    A program in a container sees all cores of the machine, whatever its quota is, and starts a thread for each.
    """
    return {} if cpu is None else dict.fromkeys(CPU_CAP_ENV_VARS, str(max(1, int(cpu))))


def rewrite_image(image: str, rewrites: Iterable[Mapping[str, str]] | None) -> str:
    """The name of an image with its registry replaced: the first of the `{from, to}` whose prefix matches counts."""
    for rewrite in rewrites or ():
        if image.startswith(rewrite["from"]):
            return rewrite["to"] + image.removeprefix(rewrite["from"])
    return image
