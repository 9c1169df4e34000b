"""A tokenizer and tiny models of `transformers`, made in memory. Skips the test if `transformers` is missing."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import lazily
import pytest
from ludus_transformers.model import TransformersModel

from ludus.tokens import Tokens

torch = lazily.imported("torch", "pip install 'ludus-transformers[train]'")
transformers = lazily.imported("transformers", "pip install 'ludus-transformers[train]'")
tokenizers = lazily.imported("tokenizers", "pip install 'ludus-transformers[train]'")

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """<|begin|>{% for m in messages %}<|header|>{{ m.role }}<|end_header|>

{{ m.content | trim }}<|eot|>{% endfor %}{% if add_generation_prompt %}<|header|>assistant<|end_header|>

{% endif %}"""
#: Drops the thinking of earlier turns.
FORGETFUL = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" and not loop.last %}{{ m.content.split("</think>")[-1] }}{% else %}{{ m.content }}
{%- endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
#: Supports `tools` and `reasoning_content`, and drops the thinking before the last user message.
TOOLS = r"""{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == "user" %}
{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ "\n<tool_call>\n" + (call.function | tojson) + "\n</tool_call>" }}
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "forgetful": FORGETFUL, "tools": TOOLS}
CONTROL = ["<|im_start|>", "<|im_end|>", "<|begin|>", "<|header|>", "<|end_header|>", "<|eot|>"]


@cache
def _byte_tokenizer() -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=CONTROL, show_progress=False
    )
    words = ["user assistant system the tool name arguments counter increment question answer aa ae io ou"] * 3
    made.train_from_iterator(words, trainer)
    return made


def tokenizer(template: str = "chatml") -> Any:
    """A byte-level tokenizer with merges and control tokens."""
    end = "<|eot|>" if template == "llama" else "<|im_end|>"
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(_byte_tokenizer().to_str()),
        eos_token=end,
        additional_special_tokens=CONTROL,
    )
    made.chat_template = TEMPLATES[template]
    return made


def llama(seed: int = 0, kind: Any = None, **settings: Any) -> Any:
    """A Llama with random weights, large enough that some tokens are much likelier than others."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    tokens: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    vocabulary = _byte_tokenizer().get_vocab_size()
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, initializer_range=0.3, **(sizes | heads | tokens | settings)
    )
    return (kind or transformers.LlamaForCausalLM)(config).eval()


#: Names of weights in GGUF files.
_GGUF = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: str, template: str = "chatml") -> None:
    """Write `llama()` and `tokenizer()` as one GGUF file."""
    gguf = pytest.importorskip("gguf", reason="needs gguf: pip install 'ludus-transformers[train]'")
    words, model = tokenizer(template), llama()
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    vocabulary = json.loads(words.backend_tokenizer.to_str())["model"]
    tokens = sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in CONTROL else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
    writer.add_eos_token_id(words.eos_token_id)
    writer.add_chat_template(words.chat_template)
    for name, weight in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            layer, part = stem.removeprefix("model.layers.").split(".", 1)
            stem = f"blk.{layer}.{_GGUF_LAYER[part]}"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):  # llama.cpp has another order of the rotated halves
                heads = config.num_attention_heads if "q_proj" in part else config.num_key_value_heads
                weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        writer.add_tensor(f"{_GGUF.get(stem, stem)}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@cache
def parrot_class() -> Any:
    """A Llama that generates fixed texts. The class is made when it is first needed, because torch loads slowly."""

    class Parrot(transformers.LlamaForCausalLM):
        """Generates fixed texts, one `script` entry for each prompt, and counts its forward passes."""

        script: list[list[int]] = []
        steps = 0

        def forward(
            self,
            input_ids: Any = None,
            position_ids: Any = None,
            past_key_values: Any = None,
            logits_to_keep: Any = 0,
            **inputs: Any,
        ) -> Any:
            """The logits of the Llama, with the scripted token much likelier than all others."""
            inputs |= {
                "position_ids": position_ids,
                "past_key_values": past_key_values,
                "logits_to_keep": logits_to_keep,
            }
            output = super().forward(input_ids=input_ids, **inputs)
            self.steps += 1
            if input_ids.shape[1] > 1:  # the prompt but for its last token
                self._current, self.script = iter(self.script[0]), self.script[1:]
            else:
                output.logits[:, -1, next(self._current)] += 1000.0
            return output

    return Parrot


async def parrot(*texts: str, **settings: Any) -> TransformersModel:
    """A started model that generates these texts, one for each request."""
    weights, words = llama(kind=parrot_class()), tokenizer()
    weights.script = [words.encode(text, add_special_tokens=False) for text in texts]
    model = TransformersModel(weights, words, config=TransformersModel.Config(**settings))
    await model.start()
    return model


def plain_logprobs(weights: Any, tokens: Tokens) -> list[float]:
    """The log probabilities of the answer in one forward pass over prompt and answer, as `sampling` says."""
    assert tokens.sampling is not None
    sampled = tokens.sampling["logprobs"] == "sampled"
    temperature, top_p = (tokens.sampling["temperature"], tokens.sampling["top_p"]) if sampled else (1.0, 1.0)
    ids = [*tokens.prompt_ids, *tokens.generated_ids]
    with torch.no_grad():
        logits = weights(torch.tensor([ids])).logits[0, len(tokens.prompt_ids) - 1 : -1].double() / temperature
    found = []
    for row, token in zip(logits.softmax(-1), tokens.generated_ids, strict=True):
        likely, order = row.sort(descending=True)
        nucleus = order[: int((likely.cumsum(0) < top_p).sum()) + 1] if top_p < 1 else order
        found.append(float((row[token] / row[nucleus].sum()).log()))
    return found
