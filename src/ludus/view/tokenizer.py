"""Token ids as text. A tokenizer may take a minute to load: a thread loads it, and no page waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_extra


class Tokenizer:
    """Turns ids into text, with a tokenizer of the package transformers that lies on this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokenizer: Any = None
        self._problem: UserError | None = None
        self._begin, self._began, self._ended = threading.Lock(), False, threading.Event()

    def load(self) -> None:
        """Begin to load, once, in a thread."""
        with self._begin:
            if not self._began:
                threading.Thread(target=self._load, daemon=True).start()
            self._began = True

    def is_loading(self) -> bool:
        """Whether the thread has not ended."""
        return not self._ended.is_set()

    def note(self) -> str | None:
        """One line on why there is no text; None if there is."""
        if self.is_loading():
            return f"The tokenizer {self.name} is loading. Until then you see ids."
        return str(self._problem) if self._problem is not None else None

    def pieces(self, ids: list[int]) -> list[str]:
        """The text of each token. This waits for the tokenizer, and raises if it cannot be loaded."""
        self.load()
        self._ended.wait()
        if self._problem is not None:
            raise self._problem
        return [str(self._tokenizer.decode([token])) for token in ids]

    def _load(self) -> None:
        path = Path(self.name)
        gguf = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
        try:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(str(path.parent if gguf else path), **gguf)
        except ModuleNotFoundError:
            self._problem = missing_extra("transformers", "train", package="transformers")
        except Exception as error:
            why = next(iter(str(error).splitlines()), repr(error))[:200]
            self._problem = UserError(f"cannot load the tokenizer {self.name}: {why}", "Name a folder: --tokenizer DIR")
        finally:
            self._ended.set()
