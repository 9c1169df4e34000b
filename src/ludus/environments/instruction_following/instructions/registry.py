"""The instructions by name, with the arguments that each takes.

The names are those of the datasets: 25 from IFEval and 29 that were added for training. An instruction takes the
keyword arguments of its function. If a row's arguments are missing, unknown or of the wrong type, the row is at fault
and not the text: `follows` raises `InstructionError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ludus.environments.instruction_following.instructions import (
    copying,
    counting,
    keywords,
    language,
    layout,
    length,
    positions,
    punctuation,
)
from ludus.errors import did_you_mean


class InstructionError(ValueError):
    """An instruction that cannot be checked: its name is unknown, or its arguments do not fit."""


@dataclass(frozen=True)
class Instruction:
    """A checker and its arguments."""

    check: Callable[..., bool]

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """A pydantic model of the arguments. It refuses missing and unknown arguments, and values of a wrong type."""
        hints = get_type_hints(self.check, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in inspect.signature(self.check).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name != "compat"
        }
        return create_model(self.check.__name__, __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def has_compat(self) -> bool:
        """Whether the reference is known to give other verdicts."""
        return "compat" in inspect.signature(self.check).parameters

    def follows(self, text: str, arguments: Mapping[str, Any] | None = None, *, compat: bool = False) -> bool:
        """Whether a text follows the instruction. An argument that is None counts as missing."""
        present = {name: value for name, value in (arguments or {}).items() if value is not None}
        try:
            checked = dict(self.arguments.model_validate(present))
        except ValidationError as error:
            first = error.errors()[0]
            raise InstructionError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if self.has_compat:
            checked["compat"] = compat
        return self.check(text, **checked)


def follows(text: str, name: str, arguments: Mapping[str, Any] | None = None, *, compat: bool = False) -> bool:
    """Whether a text follows the named instruction. Raises `InstructionError` if the instruction cannot be checked."""
    instruction = INSTRUCTIONS.get(name)
    if instruction is None:
        raise InstructionError(f"unknown instruction. {did_you_mean(name, INSTRUCTIONS)}")
    return instruction.follows(text, arguments, compat=compat)


_CHECKS: dict[str, Callable[..., bool]] = {
    "change_case:capital_word_frequency": counting.capital_word_frequency,
    "change_case:english_capital": language.english_capital,
    "change_case:english_lowercase": language.english_lowercase,
    "combination:repeat_prompt": copying.repeat_prompt,
    "combination:two_responses": copying.two_responses,
    "copy:copy": copying.copy,
    "copy:copying_multiple": copying.copying_multiple,
    "copy:copying_simple": copying.copy,
    "copy:repeat_phrase": copying.repeat_phrase,
    "count:count_increment_word": keywords.count_increment_word,
    "count:count_unique": counting.count_unique,
    "count:counting_composition": counting.counting_composition,
    "count:lowercase_counting": counting.lowercase_counting,
    "detectable_content:number_placeholders": layout.number_placeholders,
    "detectable_content:postscript": layout.postscript,
    "detectable_format:bigram_wrapping": layout.bigram_wrapping,
    "detectable_format:constrained_response": layout.constrained_response,
    "detectable_format:json_format": layout.json_format,
    "detectable_format:multiple_sections": layout.multiple_sections,
    "detectable_format:number_bullet_lists": layout.number_bullet_lists,
    "detectable_format:number_highlighted_sections": layout.number_highlighted_sections,
    "detectable_format:sentence_hyphens": layout.sentence_hyphens,
    "detectable_format:square_brackets": layout.square_brackets,
    "detectable_format:title": layout.title,
    "first_word:first_word_answer": positions.first_word_answer,
    "first_word:first_word_sent": positions.first_word_sent,
    "keywords:exclude_word_harder": keywords.exclude_word_harder,
    "keywords:existence": keywords.existence,
    "keywords:forbidden_words": keywords.forbidden_words,
    "keywords:frequency": keywords.frequency,
    "keywords:keyword_specific_position": positions.keyword_specific_position,
    "keywords:letter_frequency": counting.letter_frequency,
    "keywords:no_adjacent_consecutive": positions.no_adjacent_consecutive,
    "keywords:palindrome": positions.palindrome,
    "keywords:start_end": positions.start_end,
    "keywords:word_count_different_numbers": keywords.frequency,
    "keywords:word_once": keywords.word_once,
    "language:response_language": language.response_language,
    "last_word:last_word_answer": positions.last_word_answer,
    "last_word:last_word_sent": positions.last_word_sent,
    "length_constraints:nth_paragraph_first_word": length.nth_paragraph_first_word,
    "length_constraints:number_paragraphs": length.number_paragraphs,
    "length_constraints:number_sentences": length.number_sentences,
    "length_constraints:number_words": length.number_words,
    "letters:letter_counting": counting.letter_counting,
    "letters:letter_counting2": counting.letter_frequency,
    "new:copy_span_idx": copying.copy_span_idx,
    "paragraphs:paragraphs": length.paragraphs,
    "paragraphs:paragraphs2": length.paragraphs2,
    "punctuation:no_comma": punctuation.no_comma,
    "punctuation:punctuation_dot": punctuation.no_dot,
    "punctuation:punctuation_exclamation": punctuation.no_exclamation,
    "startend:end_checker": positions.end_checker,
    "startend:quotation": punctuation.quotation,
}
INSTRUCTIONS = {name: Instruction(check) for name, check in _CHECKS.items()}
