"""Datasets on the Hugging Face hub as rows: `hf:OWNER/NAME[@REVISION][:SPLIT]`.

Files are downloaded through `huggingface_hub` into its cache, so they are fetched once, a broken download is resumed,
and its settings hold: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE. A revision is resolved to a commit first; all
files come from that commit.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ludus.data.files import read_file_lines
from ludus.data.hub_splits import split_files
from ludus.errors import UserError, missing_extra

if TYPE_CHECKING:
    from huggingface_hub import HfApi

PREFIX = "hf:"
_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+|[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<split>[\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")

#: Control characters, halves of characters, and ends of lines and paragraphs.
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")

#: Seconds until a hub that does not answer is given up.
_TIMEOUT = 20.0


class HubReference(NamedTuple):
    """What `hf:OWNER/NAME@REVISION:SPLIT` names."""

    repo: str
    revision: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> HubReference:
        """Read a reference. `hf:` may be left out."""
        found = _REFERENCE.fullmatch(text if is_hub(text) else PREFIX + text)
        if found is None or ".." in text:
            hint = "Write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME:SPLIT"
            raise UserError(f"{text!r:.100} is not a dataset of the hub", hint)
        return cls(found["repo"], found["revision"], found["split"] or None)

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision else ""
        return f"{PREFIX}{self.repo}{at}" + (f":{self.split}" if self.split else "")


class HubRevision(NamedTuple):
    """A dataset at one commit: its files, and what the head of its card says."""

    repo: str
    commit: str
    files: list[str]
    card: dict[str, Any]


def is_hub(source: object) -> bool:
    """Whether a source names a dataset on the hub."""
    return isinstance(source, (str, Path)) and str(source).startswith(PREFIX)


def pinned(source: str) -> str:
    """The reference with its revision resolved to a commit. Fails if the split does not exist."""
    reference = HubReference.parse(source)
    found = revision_of(reference)
    files_of_split(found, reference)
    return str(reference._replace(revision=found.commit))


def hub_lines(source: str) -> Generator[tuple[str, bytes], None, None]:
    """The rows of a dataset on the hub, each with its place. Files are downloaded when their turn comes."""
    reference = HubReference.parse(source)
    found = revision_of(reference)
    for file in files_of_split(found, reference):
        name = f"{PREFIX}{found.repo}@{found.commit[:8]}:{file}"
        yield from read_file_lines(fetched(found, file), name)


def revision_of(reference: HubReference) -> HubRevision:
    """The files of a dataset at a revision. What a commit holds never changes, so it is asked for once."""
    if reference.revision and _COMMIT.fullmatch(reference.revision):
        return _at_commit(endpoint(), reference.repo, reference.revision)
    return _look_up(reference)


@functools.lru_cache(maxsize=16)
def _at_commit(_endpoint: str, repo: str, commit: str) -> HubRevision:
    return _look_up(HubReference(repo, commit, None))


def _look_up(reference: HubReference) -> HubRevision:
    with hub_errors(reference):
        info = client().dataset_info(reference.repo, revision=reference.revision, timeout=_TIMEOUT)
    commit = info.sha
    if commit is None or not _COMMIT.fullmatch(commit):
        raise UserError(f"the hub {host()} names no commit of {reference}", "Check HF_ENDPOINT")
    head: Any = info.card_data
    card = head.to_dict() if head is not None else {}
    files = [each.rfilename for each in info.siblings or []]
    _check_names(reference, files)
    return HubRevision(reference.repo, commit, files, card)


def _check_names(reference: HubReference, files: list[str]) -> None:
    """Refuse names that are no paths inside of the dataset: the hub is not ours, and names become paths."""
    known, hint = set(files), "Do not use this dataset"
    for file in files:
        steps = file.split("/")
        if file.startswith("/") or "\\" in file or ".." in steps:
            raise UserError(f"{reference} lists a file {file!r:.80} outside of itself", hint)
        if "" in steps or "." in steps or any(unicodedata.category(each) in _NOT_IN_NAMES for each in file):
            raise UserError(f"{reference} lists a file {file!a:.80}, which is no proper name", hint)
        folder = next((each for each in accumulate(steps[:-1], "{}/{}".format) if each in known), None)
        if folder is not None:
            raise UserError(f"{reference} lists {folder!r:.80} as a file and as a folder", hint)


def files_of_split(found: HubRevision, reference: HubReference) -> list[str]:
    """The files of the split that the reference names."""
    name = f"{PREFIX}{found.repo}"
    return split_files(name, found.files, found.card.get("configs"), reference.split)


def fetched(found: HubRevision, file: str) -> Path:
    """The path of a file of the dataset in the cache. Downloads it if it is not there yet."""
    from huggingface_hub import hf_hub_download

    with hub_errors(HubReference(found.repo, found.commit[:8], file)):
        path = hf_hub_download(
            found.repo, file, repo_type="dataset", revision=found.commit, etag_timeout=_TIMEOUT, endpoint=endpoint()
        )
    return Path(str(path))


def client() -> HfApi:
    """The hub's client. The token is found as its own commands find it."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise missing_extra("huggingface_hub, which reads datasets from the hub,", "data") from error
    return HfApi(endpoint=endpoint(), library_name="ludus")


def endpoint() -> str:
    """The URL of the hub."""
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise missing_extra("huggingface_hub, which reads datasets from the hub,", "data") from error
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def host() -> str:
    """The hub's host for error messages: its URL may hold a password."""
    parts = urlsplit(endpoint())
    return parts.netloc.rpartition("@")[2] or endpoint()


@contextmanager
def hub_errors(about: object) -> Iterator[None]:
    """Turn what goes wrong between us and the hub into one line. The client's own messages can hold signed URLs."""
    try:
        from huggingface_hub import errors
    except ImportError as error:
        raise missing_extra("huggingface_hub, which talks to the hub,", "data") from error
    try:
        yield
    except errors.GatedRepoError as error:
        hint = "Ask for access on its page, then set HF_TOKEN"
        raise UserError(f"{about}: access to this dataset must be granted first", hint) from error
    except errors.RepositoryNotFoundError as error:
        hint = "Check the name; for a private dataset set HF_TOKEN"
        raise UserError(f"the hub {host()} has no dataset {about}, or it is private", hint) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"the hub {host()} has no revision {about}", "Name a branch, a tag or a commit") from error
    except errors.RemoteEntryNotFoundError as error:
        raise UserError(f"the hub {host()} has no file {about}", "Name another split or revision") from error
    except errors.HfHubHTTPError as error:
        raise UserError(f"the hub {host()} answered {_status(error)} for {about}", _remedy(error)) from error
    except errors.HFValidationError as error:
        raise UserError(f"{about}: not a name of the hub", "Write OWNER/NAME") from error
    except errors.OfflineModeIsEnabled as error:
        hint = "Unset it, or use a file: ludus data download DATASET --output FOLDER"
        raise UserError(f"HF_HUB_OFFLINE is set, so {about} cannot be looked up", hint) from error
    except (errors.HTTPError, errors.LocalEntryNotFoundError, TimeoutError) as error:  # type: ignore[attr-defined]
        raise _unreachable(about, error) from error
    except OSError as error:  # the client compares the size of a file with what the hub announced
        first = " ".join(str(error).split()).partition(" (")[0]
        cause = "the hub sent only part of a file" if "onsistency check" in first else error.strerror or first[:200]
        raise UserError(f"{about}: {cause}", "Run it again: what has arrived is kept") from error
    except ValueError as error:
        raise UserError(f"the hub {host()} sent an answer that cannot be read for {about}", "Run it again") from error
    except RuntimeError as error:  # the client could not upload a large file, and names why as the cause
        refusal = error.__cause__
        if not isinstance(refusal, errors.HfHubHTTPError):
            raise _unreachable(about, error) from error
        hint = _remedy(refusal) if _status(refusal) in ("401", "403") else "Run it again: nothing was committed"
        raise UserError(f"{about}: the hub {host()} answered {_status(refusal)} to a large file", hint) from error


def _unreachable(about: object, error: BaseException) -> UserError:
    causes: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in causes:
        causes.append(each)
        each = each.__cause__ or each.__context__
    timed_out = any("Timeout" in type(each).__name__ for each in causes)
    what = "did not answer in time" if timed_out else "cannot be reached"
    hint = "Run it again: what has arrived is kept. HF_ENDPOINT names the hub"
    return UserError(f"{about}: the hub {host()} {what}", hint)


def _status(error: Any) -> str:
    return str(getattr(getattr(error, "response", None), "status_code", "an error"))


def _remedy(error: Any) -> str:
    status = _status(error)
    if status in ("401", "403"):
        return "Set HF_TOKEN to a token that may do this"
    return "Wait, then run it again" if status in ("429", "500", "502", "503", "504") else "Check the name"
