"""Loads weights and tokenizers with `transformers`, which the extra `train` of this package installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_extra

#: Above it, `model_max_length` of a tokenizer means that there is no limit.
_NO_LIMIT = 10**20


def library(name: str) -> Any:
    """Import a library of the extra `train`."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_extra("The transformers model", "train", package="transformers") from error


def load(path: str, gguf_file: str | None, dtype: str, device: str) -> tuple[Any, Any]:
    """Load a model and its tokenizer from a folder, a GGUF file or the Hub. Blocks."""
    torch, transformers = library("torch"), library("transformers")
    source, gguf, dequantised = path, {}, {}
    if gguf_file is None and path.endswith(".gguf"):
        source, gguf_file = str(Path(path).parent), Path(path).name
    if gguf_file is not None:
        gguf = {"gguf_file": gguf_file}
        # Quantised weights can be neither trained nor saved.
        dequantised = {"quantization_config": transformers.GgufConfig(dequantize=True)}
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with _quiet(transformers.utils.logging):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **gguf)
            model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **gguf, **dequantised)
    except (OSError, ValueError, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"transformers cannot load {path}: {first}", "Name a folder, a GGUF file or a model") from error
    _limit(tokenizer, model)
    return model.to(device).eval(), tokenizer


def _limit(tokenizer: Any, model: Any) -> None:
    """Give a tokenizer without a limit that of its model. Saved, the number that stands for none (10 to the power of
    30) would be the limit that servers read: SGLang's `/tokenize` answers 500 to it."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if tokenizer.model_max_length >= _NO_LIMIT and positions:
        tokenizer.model_max_length = positions


def end_ids(model: Any) -> set[int]:
    """The end-of-text ids in the settings of a model."""
    ids: set[int] = set()
    for settings in (model.config, getattr(model, "generation_config", None)):
        ends = getattr(settings, "eos_token_id", None)
        ids.update(ends if isinstance(ends, (list, tuple)) else () if ends is None else (ends,))
    return ids


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the library's progress bars: the terminal may show the progress of a collection."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
