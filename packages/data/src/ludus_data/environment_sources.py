"""The files that `ludus data prepare` collates: the datasets of environments, and files named for a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ludus.environment import Environment
from ludus.errors import UserError, did_you_mean
from ludus_data.prepare import SplitSource

#: The datasets of an environment with these names are collated.
SPLITS = ("train", "validation", "example")


def environment_sources(
    environments: Sequence[str | Path | Environment],
    files: Sequence[tuple[str, str, str | Path]] = (),
    repeats: Mapping[str, int] | int = 1,
    licences: Mapping[str, str] | None = None,
) -> list[SplitSource]:
    """The sources of a preparation, environment by environment.

        environment_sources(["mcqa"], [("train", "mcqa", "train.jsonl")], repeats={"mcqa": 2})

    `files` name a split, an environment and a file. They replace the environment's own dataset of that split. `repeats`
    are for the rows of train.
    """
    loaded: dict[str, Environment] = {}
    for spec in (*environments, *(name for _, name, _ in files)):
        key = str(spec.name if isinstance(spec, Environment) else spec)
        if key not in loaded:
            loaded[key] = Environment.load(spec)
    by_name: dict[str, Environment] = {}
    for environment in loaded.values():
        if by_name.setdefault(environment.name, environment).folder != environment.folder:
            where = f"{by_name[environment.name].folder} and {environment.folder}"
            raise UserError(f"two environments are called {environment.name}: {where}", "Rename one of them")
    if not by_name:
        raise UserError("no environment is named", "Name one: --env ENV, or --train ENV=FILE")
    for option, names in (("--repeats", [] if isinstance(repeats, int) else repeats), ("--license", licences or ())):
        for name in names:
            if name not in by_name:
                raise UserError(f"{option} names {name:.60}, which is not prepared", did_you_mean(name, by_name))
    sources = []
    for name, environment in by_name.items():
        named = [(split, Path(file)) for split, spec, file in files if loaded[spec].name == name]
        own = _own(environment, {split for split, _ in named})
        times = repeats if isinstance(repeats, int) else repeats.get(name, 1)
        for split, path, licence in (*((split, path, "unknown") for split, path in named), *own):
            source = SplitSource(name, split, path, environment.task, times if split == "train" else 1)
            source.licence = (licences or {}).get(name, licence)
            sources.append(source)
        if not named and not own:
            hint = f"Name files: --train {name}=FILE"
            raise UserError(f"environment {name} has no dataset {', '.join(SPLITS)}", hint)
    return sources


def _own(environment: Environment, replaced: set[str]) -> list[tuple[str, Path, str]]:
    """The environment's own files, without the splits for which files are named."""
    datasets = []
    for dataset in environment.datasets:
        if dataset.name in SPLITS and dataset.name not in replaced:
            file = environment.file_of(dataset)
            if file is not None:
                datasets.append((dataset.name, Path(file), dataset.licence))
    return datasets
