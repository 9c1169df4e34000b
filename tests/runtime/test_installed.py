"""Entry points of installed packages are found, also of packages that are installed later."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.runtime.installed import entry_points


def install(folder: Path, name: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ludus.tested]\n{name} = {name}\n")


def test_a_package_that_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert entry_points(group="ludus.tested").names == set()
    install(tmp_path, "first")
    monkeypatch.syspath_prepend(tmp_path)
    assert entry_points(group="ludus.tested").names == {"first"}
    install(tmp_path, "second")
    assert entry_points(group="ludus.tested").names == {"first", "second"}
