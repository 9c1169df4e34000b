"""Downloads by the hub's client that cannot fill the disk: a file ends at the size that the hub announced.

The client compares sizes after a download. Its progress bar hears of every block before the block is written, so ours
stops the download there. A file in Xet storage is only compared with the free disk before its download.
"""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from typing import Any

from ludus.errors import UserError

#: Bytes of the disk that a download leaves free.
FREE_BYTES = 256 << 20

#: The most GB of a file whose size the hub does not announce, and the variable that changes the limit.
LIMIT_GB, LIMIT_NAME = 16.0, "LUDUS_DOWNLOAD_GB"


def download(repo: str, file: str, commit: str, *, about: object, timeout: float, endpoint: str) -> Path:
    """The path of a dataset's file in the client's cache. Downloads it if it is not there yet."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.file_download import repo_folder_name

    where: Any = {"repo_type": "dataset", "revision": commit}
    if isinstance(cached := try_to_load_from_cache(repo, file, **where), str):
        return Path(cached)
    head = get_hf_file_metadata(hf_hub_url(repo, file, endpoint=endpoint, **where), timeout=timeout, endpoint=endpoint)
    cache, tag = Path(os.path.abspath(constants.HF_HUB_CACHE)), head.etag or ""
    outside = UserError(f"{about}: the hub names a file outside the cache for it", "Do not use this dataset")
    if Path(tag).name != tag:
        raise outside
    _check_disk(about, cache, head.size or 0)
    try:
        bar = _guard(about, cache, head.size)
        path = Path(hf_hub_download(repo, file, etag_timeout=timeout, endpoint=endpoint, tqdm_class=bar, **where))
    except UserError:
        blob = cache / repo_folder_name(repo_id=repo, repo_type="dataset") / "blobs" / tag
        for partial in glob.glob(f"{glob.escape(str(blob))}*.incomplete"):
            Path(partial).unlink(missing_ok=True)
        raise
    blob = Path(os.path.normpath(path.parent / os.readlink(path))) if path.is_symlink() else path
    if not blob.is_relative_to(cache):  # the client asked again, and the hub named another file
        blob.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise outside
    return path


def _guard(about: object, cache: Path, announced: int | None) -> type[Any]:
    """A progress bar of the client that ends a download that is too large."""
    from huggingface_hub.utils.tqdm import tqdm

    class Guard(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            self.is_file = options.get("name") != "huggingface_hub.xet_get"  # otherwise blocks of several files
            self.received = options.get("initial") or 0
            self.size = options.get("total") if announced is None else announced
            super().__init__(*args, **options)  # type: ignore[no-untyped-call]

        def update(self, n: Any = 1) -> Any:
            self.received += n
            if self.is_file:
                _check_size(about, self.received, self.size)
                _check_disk(about, cache, n)
            return super().update(n)

    return Guard


def _check_size(about: object, received: int, announced: int | None) -> None:
    if announced is not None and received > announced:
        message = f"{about}: the hub sent more than the {announced:,} bytes that it announced"
        raise UserError(message, "Run it again. If the hub does so again, do not use this dataset")
    if announced is None and received > (limit := _limit_gb()) * 1e9:
        message = f"{about}: the hub announces no size, and sent more than {limit:g} GB"
        raise UserError(message, f"If the file may be larger, raise {LIMIT_NAME}")


def _limit_gb() -> float:
    value = os.environ.get(LIMIT_NAME) or LIMIT_GB
    try:
        return float(value)
    except ValueError:
        raise UserError(f"{LIMIT_NAME}={value!r:.40} is not a number", f"Example: {LIMIT_NAME}=64") from None


def _check_disk(about: object, cache: Path, size: int) -> None:
    folder = next(parent for parent in (cache, *cache.parents) if parent.is_dir())
    free = shutil.disk_usage(folder).free
    if free - size < FREE_BYTES:
        message = f"{about}: {size / 1e6:,.0f} MB do not fit on the disk of {cache} ({free / 1e6:,.0f} MB free)"
        raise UserError(message, f"Make room ({FREE_BYTES >> 20} MiB stay free), or name another disk with HF_HOME")
