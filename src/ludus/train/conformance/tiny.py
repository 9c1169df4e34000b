"""A tokenizer and a model for the ids of the script, made in memory. Neither reads or writes any text."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ludus.errors import missing_extra
from ludus.train.conformance.script import VOCABULARY


def tiny_tokenizer() -> Any:
    """A tokenizer for all ids of the script."""
    transformers, tokenizers = _library("transformers"), _library("tokenizers")
    words = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0")),
        eos_token="t0",
        pad_token="t0",
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return tokenizer


def tiny_model() -> Any:
    """A model with random weights for all ids of the script."""
    transformers = _library("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_extra(name, "train", package="transformers") from error
