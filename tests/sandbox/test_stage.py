"""Folders that a sandbox sees, mounted for a user that cannot reach them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ludus.sandbox import stage
from ludus.sandbox.protocol import SandboxError

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts folders"),
    pytest.mark.skipif(stage.missing_program() is not None, reason=str(stage.missing_program())),
]


def test_a_mount_that_hangs_is_an_error_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_SCRIPT", "sleep 600; echo ready; read -r wait")
    monkeypatch.setattr(stage, "MOUNT_SECONDS", 0.2)
    with pytest.raises(SandboxError, match=r"cannot mount folders for a sandbox: timed out after 0\.2 s"):
        stage._namespace_with([str(tmp_path)])


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="cannot mount folders for a sandbox: .*gone"):
        stage._namespace_with([str(tmp_path / "gone")])
