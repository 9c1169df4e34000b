"""Datasets from the hub to a folder, and from a folder to the hub.

A download is atomic: every file is written to a temporary name and renamed, and the manifest, which names the commit,
comes last. Run it again after a failure: files that arrived are in the client's cache. An upload is one commit, so
nobody sees half of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from ludus.data.hub import HubReference, HubRevision, client, fetched, files_of_split, hub_errors, revision_of
from ludus.errors import UserError
from ludus.record import Row
from ludus.store.drafts import check_new, draft, write_whole
from ludus.store.run import indented_json
from ludus_data.card import dataset_card

MANIFEST = "manifest.json"
_CARD = "README.md"
_ELSEWHERE = "Make room or choose another --output"
Say = Callable[[str], None]


def download(source: str, output: Path, *, overwrite: bool = False, say: Say = lambda _: None) -> Row:
    """Download a dataset, or one split, to a folder. Returns the manifest, which is written there too."""
    reference = HubReference.parse(source)
    revision = revision_of(reference)
    files = files_of_split(revision, reference) if reference.split else revision.files
    check_new(output / MANIFEST, overwrite=overwrite)
    listed = []
    for file in files:
        if file == MANIFEST or any(step.startswith(".") for step in file.split("/")):  # hidden, such as .git
            continue
        say(f"downloading {file}")
        listed.append(_copy(revision, file, output, reference.split))
    origin = {
        "file": str(reference._replace(revision=None)),
        "revision": revision.commit,
        "licence": _licence(revision.card),
    }
    manifest: Row = {"files": listed, "sources": [origin]}
    if MANIFEST in files:  # the uploader's manifest
        manifest["uploaded_with"] = _read_manifest(fetched(revision, MANIFEST))
    write_whole(output / MANIFEST, indented_json(manifest) + b"\n")
    return manifest


def _copy(revision: HubRevision, file: str, output: Path, split: str | None) -> Row:
    cached, digest, size = fetched(revision, file), sha256(), 0
    with cached.open("rb") as source, draft(output / file, _ELSEWHERE) as target:
        while chunk := source.read(2**20):
            target.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    shown = {"split": split.rpartition("/")[2]} if split else {}
    return {**shown, "file": file, "bytes": size, "sha256": digest.hexdigest()}


def _licence(card: Row) -> str:
    licence = card.get("license")
    return ", ".join(map(str, licence)) if isinstance(licence, list) else str(licence or "unknown")


def upload(
    path: Path, repo: str, *, private: bool = False, message: str = "", revision: str | None = None, pr: bool = False
) -> Row:
    """Upload a file or a folder as one commit. A folder with a manifest and without a card gets a card.

    The repository is created if it does not exist. Returns its name, the commit and the files.
    """
    reference = HubReference.parse(repo)
    if reference.split or reference.revision:
        raise UserError(f"{repo:.80} names more than a repository", "Write OWNER/NAME, and a branch with --revision")
    files = _to_upload(path)
    card = _new_card(path, reference.repo, files)
    api = client()
    from huggingface_hub import CommitOperationAdd

    additions = [CommitOperationAdd(name, str(file)) for name, file in files.items()]
    if card is not None:
        additions.append(CommitOperationAdd(_CARD, card.encode()))
    with hub_errors(reference):
        api.create_repo(reference.repo, repo_type="dataset", private=private or None, exist_ok=True)
        commit: Any = api.create_commit(
            reference.repo,
            additions,
            commit_message=message or f"Upload {path.name}",
            repo_type="dataset",
            revision=revision,
            create_pr=pr or None,
        )
    names = [*files, *([_CARD] if card is not None else [])]
    return {"dataset": str(reference), "revision": commit.oid, "files": names, "pull_request": commit.pr_url}


def _to_upload(path: Path) -> dict[str, Path]:
    """The files to upload by their names on the hub. Hidden files and links that leave the folder are left out."""
    if path.is_file():
        return {path.name: path}
    if not path.is_dir():
        raise UserError(f"cannot read {path}: No such file or directory", "Name a file or a folder")
    root = path.resolve()
    files = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith(".") and not name.endswith(".part") and file.resolve().is_relative_to(root):
                files[file.relative_to(root).as_posix()] = file
    if not files:
        raise UserError(f"{path} holds no files", "Name a folder with rows")
    return files


def _new_card(path: Path, repo: str, files: dict[str, Path]) -> str | None:
    """The card made from the manifest; None if there is no manifest, or a card already."""
    if MANIFEST not in files or _CARD in files:
        return None
    manifest = _read_manifest(files[MANIFEST])
    if not isinstance(manifest, dict):
        raise UserError(f"{path / MANIFEST} is not a manifest", f"Repair or remove it, or write {_CARD} yourself")
    return dataset_card(repo, manifest)


def _read_manifest(path: Path) -> Any:
    """The content of a manifest; None if it is no JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None


@dataclass
class HubDataset:
    """A dataset as a list of the hub shows it."""

    name: str
    private: bool
    downloads: int
    changed: str

    def as_json(self) -> Row:
        """The dataset, for `--json`."""
        return {"name": self.name, "private": self.private, "downloads": self.downloads, "changed": self.changed}


def list_datasets(owner: str | None, search: str | None, limit: int) -> list[HubDataset]:
    """Datasets of an owner, or that match a word."""
    with hub_errors(f"the list of datasets of {owner}" if owner else "the list of datasets"):
        datasets = client().list_datasets(author=owner, search=search, limit=limit)
        return [
            HubDataset(
                dataset.id,
                bool(dataset.private),
                int(dataset.downloads or 0),
                dataset.last_modified.date().isoformat() if dataset.last_modified else "",
            )
            for dataset in datasets
        ]


def list_files(source: str) -> Row:
    """The commit and the files of a dataset."""
    revision = revision_of(HubReference.parse(source))
    return {
        "dataset": revision.repo,
        "revision": revision.commit,
        "licence": _licence(revision.card),
        "files": revision.files,
    }
