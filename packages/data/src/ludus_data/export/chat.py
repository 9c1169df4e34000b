"""Formats with one conversation a row: supervised fine-tuning in TRL, NeMo RL, NeMo Customizer and at OpenAI."""

from __future__ import annotations

from collections.abc import Iterator

from ludus.dialects.chat_style import OPENAI
from ludus_data.export.conversation import Conversations, ends_with_answer
from ludus_data.export.format import ExportRow, Format, Unit
from ludus_data.export.token_rows import token_rows


class Sft(Format):
    """`messages` and `tools`, or `prompt`, `completion` and `tools`, or token sequences with labels."""

    name = "sft"
    summary = "conversations with tools, for TRL's SFTTrainer; --tokens for token sequences with loss masks"
    offers = frozenset({"reasoning", "tokens", "shape"})

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row, or one for each token sequence."""
        (sample,) = unit
        if self.choices.tokens:
            for sequence in token_rows(sample):
                yield {
                    "input_ids": sequence.ids,
                    "labels": [id if wrote else -100 for id, wrote in zip(sequence.ids, sequence.mask, strict=True)],
                    "ludus": sample.origin(),
                }
            return
        prompt, completion, tools = self.conversations.of(sample)
        if self.choices.shape == "completion":
            yield {"prompt": prompt, "completion": completion, "tools": tools, "ludus": sample.origin()}
        else:
            yield {"messages": prompt + completion, "tools": tools, "ludus": sample.origin()}


class OpenAI(Format):
    """OpenAI's chat format for supervised fine-tuning: arguments stay text, reasoning has no place."""

    name = "openai"
    summary = "OpenAI's fine-tuning JSONL; receipts go to a second file, because unknown fields are refused"
    origins_beside = True
    offers = frozenset()

    def _conversations(self) -> Conversations:
        return Conversations(self.losses, OPENAI, as_objects=False)

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row. Assistant messages of the prompt get weight 0: the model did not write them."""
        (sample,) = unit
        conversation = ends_with_answer(self.conversations.of(sample))
        for message in conversation.prompt:
            if message["role"] == "assistant":
                message["weight"] = 0
        row: ExportRow = {"messages": conversation.messages}
        if conversation.tools:
            parallel = sample.response.get("parallel_tool_calls")
            row["tools"] = conversation.tools
            row["parallel_tool_calls"] = parallel if isinstance(parallel, bool) else True
        yield row


class NemoRL(Format):
    """NeMo RL's `OpenAIFormatDataset`."""

    name = "nemo"
    summary = "conversations for NeMo RL's OpenAIFormatDataset"

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row; its last message is the assistant's."""
        (sample,) = unit
        conversation = ends_with_answer(self.conversations.of(sample))
        yield {"messages": conversation.messages, "tools": conversation.tools, "ludus": sample.origin()}


class NemoCustomizer(Format):
    """NeMo Customizer's chat JSONL."""

    name = "nemo-customizer"
    summary = "NeMo Customizer's chat JSONL; receipts go to a second file"
    origins_beside = True

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row; its last message is the assistant's."""
        (sample,) = unit
        conversation = ends_with_answer(self.conversations.of(sample))
        row: ExportRow = {"messages": conversation.messages}
        if conversation.tools:
            row["tools"] = conversation.tools
        yield row
