"""Which files of a dataset on the hub belong to a split: by its card, or by the names of its files."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from ludus.errors import UserError

_KINDS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
_PACKED = (".gz", ".zst")
_NOT_ROWS = re.compile(r"(^|/)(\.|dataset_infos?\.json|manifest\.json|config\.json|metadata\.json|state\.json)")
_SHARD = re.compile(r"(?P<split>\w[\w.]*?)-\d{5}-of-\d{5}")
_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}

#: The files of each split of each configuration.
Splits = dict[str, dict[str, list[str]]]


def split_files(name: str, files: list[str], configs: Any, wanted: str | None) -> list[str]:
    """The files of the split `wanted`: `SPLIT`, `CONFIG/SPLIT` or `CONFIG`; by default of `train` or the only split."""
    splits_of = _from_card(files, configs) or _from_names(files)
    if not splits_of:
        known = ", ".join(kind[1:] for kind in _KINDS)
        raise UserError(f"{name} has no files of rows", f"Ludus reads {known}, and these as .gz or .zst")
    config, split = _parse(wanted, splits_of)
    if config is None:
        config = next(iter(splits_of)) if len(splits_of) == 1 else "default"
    if config not in splits_of or (split is not None and split not in splits_of[config]):
        raise _unknown(name, splits_of, wanted)
    splits = splits_of[config]
    if split is None:
        split = "train" if "train" in splits else next(iter(splits)) if len(splits) == 1 else None
    if split is None:
        raise _unknown(name, splits_of, wanted)
    return _of_one_kind(splits[split])


def _parse(wanted: str | None, splits_of: Splits) -> tuple[str | None, str | None]:
    """The configuration and the split that are asked for."""
    if wanted is None:
        return None, None
    config, slash, split = wanted.rpartition("/")
    if slash and config in splits_of:
        return config, split
    return (wanted, None) if wanted in splits_of else (None, wanted)


def _unknown(name: str, splits_of: Splits, wanted: str | None) -> UserError:
    several = len(splits_of) > 1
    known = [f"{config}/{split}" if several else split for config, splits in splits_of.items() for split in splits]
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    problem = f"{name} has no split {wanted:.60}" if wanted else f"{name} has several splits"
    return UserError(problem, f"Write {name}:SPLIT with one of: {listed}")


def _from_card(files: list[str], configs: Any) -> Splits:
    """The splits that the head of the dataset's card lists in `configs`. Patterns match names, never the disk."""
    splits_of: Splits = {}
    default = None
    for config in configs if isinstance(configs, list) else ():
        if not isinstance(config, dict):
            continue
        name = str(config.get("config_name", "default"))
        default = name if config.get("default") is True else default
        for split, pattern in _data_files(config.get("data_files")):
            matching = [file for file in files if fnmatch.fnmatchcase(file, pattern.removeprefix("./"))]
            if matching:
                splits_of.setdefault(name, {}).setdefault(split, []).extend(sorted(matching))
    if default in splits_of and "default" not in splits_of:
        splits_of = {"default": splits_of[default], **splits_of}
    return splits_of


def _data_files(data_files: Any) -> list[tuple[str, str]]:
    """Pairs of a split and a pattern of file names."""
    pairs: list[tuple[str, str]] = []
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, paths = "train", entry
        if isinstance(entry, dict):
            split, paths = str(entry.get("split", "train")), entry.get("path")
        pairs += [(split, path) for path in (paths if isinstance(paths, list) else [paths]) if isinstance(path, str)]
    return pairs


def _from_names(files: list[str]) -> Splits:
    splits_of: Splits = {}
    for file in sorted(files):
        if _kind(file) is not None and not _NOT_ROWS.search(file):
            config, split = _place(file)
            splits_of.setdefault(config, {}).setdefault(split, []).append(file)
    return splits_of


def _place(file: str) -> tuple[str, str]:
    """The configuration and the split of a file, by its folders and its name."""
    *folders, name = file.split("/")
    shard = _SHARD.match(name)
    split = _keyword(shard["split"]) or shard["split"] if shard else _keyword(name)
    for folder in reversed(folders):
        split = split or _keyword(folder)
    config = "/".join(folder for folder in folders if folder != "data" and _keyword(folder) is None)
    return config or "default", split or "train"


def _keyword(text: str) -> str | None:
    words = re.split(r"[^a-z]+", text.lower())
    return next((split for split, names in _SPLITS.items() if any(name in words for name in names)), None)


def _kind(file: str) -> str | None:
    for packed in _PACKED:
        file = file.removesuffix(packed)
    return next((kind for kind in _KINDS if file.endswith(kind)), None)


def _of_one_kind(files: list[str]) -> list[str]:
    """The files of one format: a dataset often has the same rows twice, as Parquet and as JSON."""
    first = next((kind for kind in _KINDS if any(_kind(file) == kind for file in files)), None)
    return [file for file in dict.fromkeys(files) if _kind(file) == first]
