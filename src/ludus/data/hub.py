"""Datasets on the Hugging Face hub as rows: `hf:OWNER/NAME[@REVISION][:SPLIT]`.

Files are downloaded through `huggingface_hub` into its cache, so they are fetched once, and its settings hold:
HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE. A revision is resolved to a commit first; all files are of that commit.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ludus.data.files import read_file_lines
from ludus.data.hub_download import download
from ludus.data.hub_splits import split_files
from ludus.errors import UserError, missing_extra

if TYPE_CHECKING:
    from huggingface_hub import HfApi

PREFIX = "hf:"
_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+|[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<split>[\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")

#: Control characters, halves of characters, and ends of lines and paragraphs.
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")

#: Seconds before a request to the hub times out.
_TIMEOUT = 20.0


class HubReference(NamedTuple):
    """What `hf:OWNER/NAME@REVISION:SPLIT` names."""

    repo: str
    revision: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> HubReference:
        """Read a reference. `hf:` may be left out."""
        match = _REFERENCE.fullmatch(text if is_hub(text) else PREFIX + text)
        if match is None or ".." in text:
            hint = "Write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME:SPLIT"
            raise UserError(f"{text!r:.100} is not a dataset of the hub", hint)
        return cls(match["repo"], match["revision"], match["split"] or None)

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
    revision = revision_of(reference)
    files_of_split(revision, reference)
    return str(reference._replace(revision=revision.commit))


def hub_lines(source: str) -> Generator[tuple[str, bytes], None, None]:
    """The rows of a dataset on the hub, each with its place. Files are downloaded when their turn comes."""
    reference = HubReference.parse(source)
    revision = revision_of(reference)
    for file in files_of_split(revision, reference):
        name = f"{PREFIX}{revision.repo}@{revision.commit[:8]}:{file}"
        yield from read_file_lines(fetched(revision, file), name)


def revision_of(reference: HubReference) -> HubRevision:
    """The files of a dataset at a revision. A commit never changes, so its files are cached."""
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
    files = [sibling.rfilename for sibling in info.siblings or []]
    _check_names(reference, files)
    return HubRevision(reference.repo, commit, files, card)


def _check_names(reference: HubReference, files: list[str]) -> None:
    """Refuse names that are no paths inside the dataset: names become paths, and we do not trust the hub."""
    known, hint = set(files), "Do not use this dataset"
    for file in files:
        steps = file.split("/")
        if file.startswith("/") or "\\" in file or ".." in steps:
            raise UserError(f"{reference} lists a file {file!r:.80} outside its folder", hint)
        if "" in steps or "." in steps or any(unicodedata.category(character) in _NOT_IN_NAMES for character in file):
            raise UserError(f"{reference} lists a file with a bad name: {file!a:.80}", hint)
        folder = next((parent for parent in accumulate(steps[:-1], "{}/{}".format) if parent in known), None)
        if folder is not None:
            raise UserError(f"{reference} lists {folder!r:.80} as a file and as a folder", hint)


def files_of_split(revision: HubRevision, reference: HubReference) -> list[str]:
    """The files of the split that the reference names."""
    name = f"{PREFIX}{revision.repo}"
    return split_files(name, revision.files, revision.card.get("configs"), reference.split)


def fetched(revision: HubRevision, file: str) -> Path:
    """The path of a file of the dataset in the cache. Downloads it if it is not there yet."""
    repo, commit, about = revision.repo, revision.commit, HubReference(revision.repo, revision.commit[:8], file)
    with hub_errors(about):
        return download(repo, file, commit, about=about, timeout=_TIMEOUT, endpoint=endpoint())


def client() -> HfApi:
    """The hub's client. It looks for the token where its own commands do."""
    _require_library()
    from huggingface_hub import HfApi

    return HfApi(endpoint=endpoint(), library_name="ludus")


def endpoint() -> str:
    """The URL of the hub."""
    _require_library()
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def _require_library() -> None:
    if find_spec("huggingface_hub") is None:
        raise missing_extra("huggingface_hub, which talks to the hub,", "data")


def host() -> str:
    """The hub's host for error messages: its URL may hold a password."""
    parts = urlsplit(endpoint())
    return parts.netloc.rpartition("@")[2] or endpoint()


@contextmanager
def hub_errors(about: object) -> Iterator[None]:
    """Turn errors of the hub's client into one line. The client's own messages can hold signed URLs."""
    _require_library()
    from huggingface_hub import errors

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
        cause = (
            "the hub sent a file of another size than it announced"
            if "onsistency check" in first
            else error.strerror or first[:200]
        )
        raise UserError(f"{about}: {cause}", "Run it again: files that have arrived are kept") from error
    except ValueError as error:
        raise UserError(f"the hub {host()} sent an unreadable answer for {about}", "Run it again") from error
    except RuntimeError as error:  # the client could not upload a large file; __cause__ says why
        refusal = error.__cause__
        if not isinstance(refusal, errors.HfHubHTTPError):
            raise _unreachable(about, error) from error
        hint = _remedy(refusal) if _status(refusal) in ("401", "403") else "Run it again: nothing was committed"
        raise UserError(f"{about}: the hub {host()} answered {_status(refusal)} to a large file", hint) from error


def _unreachable(about: object, error: BaseException) -> UserError:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    timed_out = any("Timeout" in type(cause).__name__ for cause in causes)
    what = "did not answer in time" if timed_out else "cannot be reached"
    hint = "Run it again: files that have arrived are kept. HF_ENDPOINT names the hub"
    return UserError(f"{about}: the hub {host()} {what}", hint)


def _status(error: Any) -> str:
    return str(getattr(getattr(error, "response", None), "status_code", "an error"))


def _remedy(error: Any) -> str:
    status = _status(error)
    if status in ("401", "403"):
        return "Set HF_TOKEN to a token that may do this"
    return "Wait, then run it again" if status in ("429", "500", "502", "503", "504") else "Check the name"
