"""Entry points of installed packages are found, also of packages that are installed later."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from ludus.runtime.installed import EntryPoint, entry_points, named_entry_points


def install(folder: Path, name: str, version: str = "1.0", entries: str | None = None) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entries or f"[ludus.tested]\n{name} = {name}\n")


def names(group: str) -> set[str]:
    return {entry.name for entry in entry_points(group)}


def test_a_package_that_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names("ludus.tested") == set()
    install(tmp_path, "first")
    monkeypatch.syspath_prepend(tmp_path)
    assert names("ludus.tested") == {"first"}
    install(tmp_path, "second")
    assert names("ludus.tested") == {"first", "second"}


def test_of_two_copies_of_a_package_the_one_that_python_imports_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0", "2.0"):
        install(tmp_path / version, "a_package", version, f"[ludus.tested]\nit = it:version_{version[0]}\n")
        monkeypatch.syspath_prepend(tmp_path / version)
    assert entry_points("ludus.tested") == [EntryPoint("it", "it:version_2", "a-package")]


def test_comments_blanks_and_extras_are_no_part_of_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# it = that:it\n\n[ludus.tested]\n\n one=os.path : join [more]\n; two = no\n[ludus.others]\nthree = json\n"
    install(tmp_path, "written_by_hand", entries=text)
    monkeypatch.syspath_prepend(tmp_path)
    (one,) = entry_points("ludus.tested")
    assert (one.name, one.module, one.load()) == ("one", "os.path", os.path.join)
    assert named_entry_points("ludus.others")["three"].load() is json


def test_every_package_here_has_the_entry_points_that_importlib_reads() -> None:
    groups = importlib.metadata.entry_points()
    for group in groups.groups:
        expected = {(entry.name, entry.value) for entry in groups.select(group=group) if "[" not in entry.value}
        assert expected <= {(entry.name, entry.value) for entry in entry_points(group)}
