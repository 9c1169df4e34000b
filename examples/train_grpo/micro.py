"""A language model with random weights and 17 symbols, made in memory: it trains on a CPU in seconds."""

from __future__ import annotations

from typing import Any

SYMBOLS = ["<end>", "<user>", "<assistant>", *"0123456789", "+", "-", "=", " "]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def micro_model(seed: int) -> tuple[Any, Any]:
    """A Llama of two layers and its tokenizer, one token for each symbol."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from tokenizers.decoders import Fuse
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {symbol: number for number, symbol in enumerate(SYMBOLS)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    made.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", pad_token="<end>", additional_special_tokens=SYMBOLS[1:3]
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config), tokenizer
