"""The form of a text: lists, titles, sections, brackets, JSON, and the fixed phrases that some instructions ask for."""

from __future__ import annotations

import json
import re

from ludus.environments.instruction_following.instructions.arguments import Count, Text, Word
from ludus.environments.instruction_following.instructions.matching import pattern_count
from ludus.environments.instruction_following.instructions.sentences import rule_sentences

_STAR_BULLET = re.compile(r"^[^\S\n]*(\*[^*].*)$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*(-.*)$", re.MULTILINE)
_RULE = re.compile(r"(?:-\s*){3,}|(?:\*\s*){3,}")
_ITALIC = re.compile(r"\*([^*\n]*)\*")
_BOLD = re.compile(r"\*\*([^*\n]*)\*\*")
_POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES = ("```json", "```Json", "```JSON", "```")


def number_bullet_lists(text: str, *, num_bullets: Count, compat: bool = False) -> bool:
    """Exactly `num_bullets` lines start with `*` or `-`. In the reference a horizontal rule is a bullet."""
    bullets = [*_STAR_BULLET.findall(text), *_DASH_BULLET.findall(text)]
    return sum(compat or not _RULE.fullmatch(bullet) for bullet in bullets) == num_bullets


def number_highlighted_sections(text: str, *, num_highlights: Count) -> bool:
    """At least `num_highlights` spans stand between single or double asterisks."""
    spans = [*_ITALIC.findall(text), *_BOLD.findall(text)]
    return sum(bool(span.strip()) for span in spans) >= num_highlights


def multiple_sections(text: str, *, section_spliter: Word, num_sections: Count, compat: bool = False) -> bool:
    """A number follows the word for a section at least `num_sections` times, in the same case."""
    if not compat:
        return len(re.findall(rf"{re.escape(section_spliter)}\s?\d+", text)) >= num_sections
    return (pattern_count(rf"{section_spliter}\s?\d+", text) or 0) >= num_sections


def number_placeholders(text: str, *, num_placeholders: Count) -> bool:
    """There are at least `num_placeholders` placeholders such as `[name]`, each on one line."""
    count = 0
    for line in text.split("\n"):
        start = 0
        while (start := line.find("[", start)) >= 0 and (start := line.find("]", start)) >= 0:
            count += 1
    return count >= num_placeholders


def title(text: str) -> bool:
    """A line contains a title: some text between `<<` and `>>`."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def json_format(text: str) -> bool:
    """The text, without a code fence around it, is JSON."""
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def constrained_response(text: str, *, compat: bool = False) -> bool:
    """Exactly one of the three answers that the instruction offers occurs. The reference accepts several."""
    count = sum(answer in text for answer in _ANSWERS)
    return count == 1 or (compat and count > 1)


def postscript(text: str, *, postscript_marker: Text, compat: bool = False) -> bool:
    """The text ends with a postscript that has the marker, in any case. The reference accepts it anywhere."""
    text, marker = text.lower().rstrip(), postscript_marker.strip()
    if compat and marker not in _POSTSCRIPTS:
        return bool(pattern_count(marker.lower(), text))
    pattern = _POSTSCRIPTS.get(marker) or re.compile(re.escape(marker.lower()))
    last = None
    for last in pattern.finditer(text):  # noqa: B007
        pass
    return last is not None and (compat or _ends_text(text, last.start()))


def _ends_text(text: str, start: int) -> bool:
    """Whether the last line starts here, or a last paragraph with text before it."""
    rest = text[start:]
    return "\n" not in rest or ("\n\n" not in rest and bool(text[:start].strip()))


def sentence_hyphens(text: str) -> bool:
    """Sentences are joined by hyphens without spaces, and there are no other hyphens."""
    return all(
        piece == sentence
        for piece, sentence in zip(text.split("-"), rule_sentences(text.replace("-", " ")), strict=False)
    )


def square_brackets(text: str) -> bool:
    """Every word stands in its own square brackets."""
    return all(word.startswith("[") and word.endswith("]") for word in text.split())


def bigram_wrapping(text: str, *, compat: bool = False) -> bool:
    """Every pair of words stands in double angle brackets. The reference also accepts brackets around each word."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(
        first.startswith("<<")
        and second.endswith(">>")
        and (compat or not (first.endswith(">>") or second.startswith("<<")))
        for first, second in pairs
    )
