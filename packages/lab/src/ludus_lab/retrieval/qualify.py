"""How qualification answers: it opens the row's document and cites the sentence around the answer."""

from __future__ import annotations

from functools import cache
from typing import Any

from ludus_lab.retrieval.corpus import FOLDER, one_line
from ludus_lab.retrieval.ranking import open_library


def oracle(task: Any) -> list[Any]:
    """Read the document, then answer and cite."""
    return [_read(task.document), _answer(task.expected_answer, _cite(task.document, _quote(task)))]


def answer(task: Any, text: str) -> str:
    """A text between the tags."""
    return f"<answer>{text}</answer>"


def preserving(task: Any) -> dict[str, Any]:
    """The same answer after a search, with a second citation, and in other spellings."""
    cited, value = _cite(task.document, _quote(task)), task.expected_answer
    more = _cite(task.document, _beginning(task))
    by_search = {"call": "search", "arguments": {"query": f"{' '.join(task.shows)} {task.input[-1]['content']}"}}
    return {
        "after_a_search": [by_search, *oracle(task)],
        "two_citations": [_read(task.document), _answer(value, cited, more)],
        "line_breaks": [
            _read(task.document),
            _answer(f" {value} ", cited.replace(" ", "\n").replace("<cite\n", "<cite ")),
        ],
        "second_thought": [_read(task.document), f"<answer>7</answer> No:\n{_answer(value, cited)}"],
        "code_marks": [_read(task.document), _answer(f"`{value}`", cited)],
        "lower_case": [_read(task.document), _answer(value.lower(), cited)],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Right answers without support, invented and foreign quotations, and supported wrong answers."""
    value, quote, read = task.expected_answer, _quote(task), _read(task.document)
    cited = _cite(task.document, quote)
    wrong = f"{value[:-1]}{'7' if value[-1] != '7' else '8'}"
    other = "about.html" if task.document != "about.html" else "limits.html"
    return {
        "never_read": _answer(value, cited),
        "not_cited": [read, _answer(value)],
        "wrong": [read, _answer(wrong, cited)],
        "hedged": [read, _answer(f"{value} or {wrong}", cited)],
        "invented": [read, _answer(value, _cite(task.document, f"The answer is {value}, as everybody knows."))],
        "changed_words": [read, _answer(value, _cite(task.document, f"{quote} indeed"))],
        "other_document": [read, _read(other), _answer(value, _cite(other, quote))],
        "unknown_document": [read, _answer(value, _cite("no-such-page.html", quote))],
        "another_passage": [read, _answer(value, _cite(task.document, _beginning(task)))],
        "one_false_of_two": [read, _answer(value, cited, _cite(task.document, "words that nobody wrote"))],
        "too_many": [read, _answer(value, *[cited] * 4)],
        "too_short": [read, _answer(value, _cite(task.document, value[:5]))],
        "whole_page": [read, _answer(value, _cite(task.document, _text(task)[:5000]))],
        "no_answer": [read, cited],
        "no_tags": [read, f"{value}\n{cited}"],
    }


def exploits(task: Any) -> dict[str, Any]:
    """Search and cite the first result, whatever it says."""
    query = str(task.input[-1]["content"])[:300]
    first = open_library(FOLDER, "bm25").search(query, 1)
    cited = _cite(first[0].document, first[0].text[:300]) if first else ""
    return {"cites_the_first_result": [{"call": "search", "arguments": {"query": query}}, _answer("42", cited)]}


def _read(name: str) -> dict[str, Any]:
    return {"call": "open", "arguments": {"document": name, "page": 1}}


def _answer(text: str, *citations: str) -> str:
    return "\n".join([f"<answer>{text}</answer>", *citations])


def _cite(document: str, quote: str) -> str:
    return f'<cite document="{document}">{quote}</cite>'


def _quote(task: Any) -> str:
    """A line of the document that has all that a citation must show, cut to its surroundings."""
    return _quoted(task.document, tuple(task.shows))


@cache
def _quoted(document: str, shows: tuple[str, ...]) -> str:
    for line in map(one_line, open_library(FOLDER, "bm25").documents[document].text.splitlines()):
        if all(text in line for text in shows):
            start = max(0, min(line.find(text) for text in shows) - 20)
            end = max(line.find(text) + len(text) for text in shows)
            return line[start : end + 20].strip()
    raise ValueError(f"{document} does not show {shows}")


def _beginning(task: Any) -> str:
    """The first words of the document."""
    return _text(task)[:60].strip()


def _text(task: Any) -> str:
    return one_line(open_library(FOLDER, "bm25").documents[task.document].text)
