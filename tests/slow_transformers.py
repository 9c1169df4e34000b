"""A stand-in for transformers whose tokenizer loads when a test says so. Its tokens are numbers in brackets."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest
import waiting


class SlowTransformers(ModuleType):
    """Put into `sys.modules` by `install`. `from_pretrained` waits for `may_load`, then raises `error` if set."""

    def __init__(self) -> None:
        super().__init__("transformers")
        self.asked, self.may_load = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.AutoTokenizer = self

    def install(self, monkeypatch: pytest.MonkeyPatch) -> SlowTransformers:
        """Stand in for the package until the test ends."""
        monkeypatch.setitem(sys.modules, "transformers", self)
        return self

    def from_pretrained(self, name: str, **options: Any) -> SlowTransformers:
        self.asked.set()
        assert self.may_load.wait(waiting.CEILING)
        if self.error is not None:
            raise self.error
        return self

    def decode(self, ids: list[int]) -> str:
        return f"[{ids[0]}]"
