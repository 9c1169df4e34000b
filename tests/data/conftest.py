"""A hub on this machine, and a cache of its own for each test."""

from __future__ import annotations

import pytest
from hub_server import running_hub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with running_hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found
