"""Datasets on Hugging Face, through its own package, which is optional."""

from __future__ import annotations

import importlib
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ludus.errors import UserError

PACKAGE = "huggingface_hub"


def is_installed() -> bool:
    """Whether the package is there."""
    return find_spec(PACKAGE) is not None


def download(repository: str, artifact: str, target: Path, token: Any = None) -> None:
    """Download a file of a dataset's repository."""
    hub = _hub()
    try:
        downloaded = hub.hf_hub_download(repo_id=repository, filename=artifact, repo_type="dataset", token=token)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(downloaded, target)
    except Exception as error:
        raise _failed(f"cannot download {artifact} of {repository}", error) from error


def upload(source: Path, repository: str, artifact: str, token: Any = None, *, create_pr: bool = False) -> str:
    """Upload a file to a dataset's repository. Returns the URL of the commit or of the pull request."""
    if not source.is_file():
        raise UserError(f"there is no file {source}", "Name it with +input_jsonl_fpath=FILE")
    hub = _hub()
    try:
        done = hub.HfApi(token=token).upload_file(
            path_or_fileobj=source,
            path_in_repo=artifact,
            repo_id=repository,
            repo_type="dataset",
            create_pr=create_pr,
        )
    except Exception as error:
        raise _failed(f"cannot upload {source} to {repository}", error) from error
    return str(getattr(done, "pr_url", None) or getattr(done, "commit_url", None) or done)


def _hub() -> Any:
    if not is_installed():
        raise UserError(f"{PACKAGE} is not installed", f"Install it with: pip install {PACKAGE}")
    return importlib.import_module(PACKAGE)


def _failed(what: str, error: Exception) -> UserError:
    from ludus.runtime.keys import without_keys

    return UserError(f"{what}: {type(error).__name__}: {without_keys(' '.join(str(error).split()))[:200]}")
