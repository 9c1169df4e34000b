"""Sentences and words: the splits match the reference's tokenizers, and hostile texts neither raise nor take long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.instruction_following.instructions.sentences import punkt_sentences, rule_sentences
from ludus.environments.instruction_following.instructions.words import tokens, words

MARKS = [
    ".",
    "..",
    "...",
    "!",
    "?",
    '"',
    "'",
    "''",
    "”",
    ")",
    "(",
    " ",
    "\n",
    "--",
    "-",
    ",",
    ":",
    "Mr.",
    "U.S.",
    "p.m.",
]
MARKS += ["Ph.D.", "5", "A", "b.", "can't", "gonna", "Inc. ", "We ", "`", "\ufdd0", "\ufdd1", "\ud800"]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(MARKS), max_size=30).map("".join))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("  \n ", []),
        ("One here. Two here! Three?", ["One here.", "Two here!", "Three?"]),
        ("no mark at all", ["no mark at all"]),
        ("Dr. Li met Mrs. Wu.", ["Dr. Li met Mrs. Wu."]),
        ("It costs 3.50 now. Cheap.", ["It costs 3.50 now.", "Cheap."]),
        ("She came at 5 p.m. It rained.", ["She came at 5 p.m.", "It rained."]),
        ("The U.S. Navy came.", ["The U.S. Navy came."]),
        ("J. Smith wrote it. Plan B. We wait.", ["J. Smith wrote it.", "Plan B.", "We wait."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ('He said "go." Then he went.', ['He said "go."', "Then he went."]),
        ("(Really.) Yes.", ["(Really.)", "Yes."]),
        ("What?! No.", ["What?!", "No."]),
        ("Page 5. Then 6.", ["Page 5.", "Then 6."]),
        ("Only 5. apples came.", ["Only 5. apples came."]),
        ("one.two", ["one.two"]),
        ("One here.\nTwo here.", ["One here.", "Two here."]),
    ],
)
def test_punkt_ends_a_sentence_unless_the_period_belongs_to_an_abbreviation(text: str, sentences: list[str]) -> None:
    assert punkt_sentences(text) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "A? | B. | C! | D.",
        "A! | B. | S? | C.",
        "I. | C?",
        "Q. | D N!! | H!",
        "b. | Really?",
        "B. C.",
        "G. x. | S",
        "L. U. | D?",
        "It. | y. | D!",
        "o. | C! | t.",
        "p.m. N? | O. | C",
        "Plan B. | Results follow! | Is it plan X? | Tests came back.",
        "We met J. Smith! | Did George W. Bush come? | No.",
    ],
)
def test_a_single_letter_ends_a_sentence_unless_a_name_or_an_abbreviation_follows(text: str) -> None:
    """The expected splits are those of NLTK 3.10."""
    assert punkt_sentences(text.replace("| ", "")) == text.split(" | ")


LETTERS = "abijoquxyzABIJOQUXYZ"  #: letters that are no abbreviations


@given(st.lists(st.tuples(st.sampled_from(LETTERS), st.sampled_from(".!?")), min_size=1, max_size=12))
def test_single_letters_and_marks_end_as_many_sentences_as_there_are(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(map("".join, pairs))
    following = [*(letter for letter, _ in pairs[1:]), ""]
    ends = [mark != "." or after in ("", "A", "B", "Z") for (_, mark), after in zip(pairs, following, strict=True)]
    assert len(punkt_sentences(text)) == sum(ends)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("Owls sleep. Owls dream!", ["Owls sleep.", "Owls dream!"]),
        ("Mr. Li has a Ph.D. and 2.5 cats.", ["Mr. Li has a Ph.D. and 2.5 cats."]),
        ("See ludus.org now. Go.", ["See ludus.org now.", "Go."]),
        ("Acme Inc. sells e.g. tea.", ["Acme Inc. sells e.g. tea."]),
        ("He left Acme Inc. He left the U.S.A. It rained.", ["He left Acme Inc", "He left the U.S.A.", "It rained."]),
        ("Well... no", ["Well...", "no"]),
        ("No!!", ["No!", "!"]),
        ('He said "go." Then "why?" Yes', ['He said "go".', 'Then "why"?', "Yes"]),
        ("Version 1.2.3 came.", ["Version 1.2.", "3 came."]),
        ("One\nline", ["One line"]),
    ],
)
def test_rules_end_a_sentence_at_every_mark_that_no_rule_keeps(text: str, sentences: list[str]) -> None:
    assert rule_sentences(text) == sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("She can't wait, can she?", ["She", "ca", "n't", "wait", ",", "can", "she", "?"]),
        ("It's Jo's, they'll say 'yes'.", ["It", "'s", "Jo", "'s", ",", "they", "'ll", "say", "'", "yes", "'", "."]),
        ('He said "go".', ["He", "said", "``", "go", "''", "."]),
        ("U.S.A. wins 1,000 (or 3:1)...", ["U.S.A.", "wins", "1,000", "(", "or", "3:1", ")", "..."]),
        ("I cannot -- gonna std::x", ["I", "can", "not", "--", "gon", "na", "std", ":", ":x"]),
        ("one.two end.", ["one.two", "end", "."]),
        ("don\u2019t \u2014 50% #1", ["don", "\u2019", "t", "\u2014", "50", "%", "#", "1"]),
    ],
)
def test_tokens_are_penn_treebank_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_words_are_whole_and_have_no_marks() -> None:
    text = "«She» can\u2019t wait; a well-known U.S. firm pays 1,000.50 -- or -5... to 'em/us!"
    expected = [
        "She",
        "can\u2019t",
        "wait",
        "a",
        "well-known",
        "U.S",
        "firm",
        "pays",
        "1,000.50",
        "or",
        "5",
        "to",
        "em/us",
    ]
    assert words(text) == expected


@given(hostile)
def test_no_text_raises_and_only_whitespace_is_dropped(text: str) -> None:
    assert "".join("".join(punkt_sentences(text)).split()) == "".join(text.split())
    rule_sentences(text)
    assert all(token and not token.isspace() for token in tokens(text))
    assert all(word in text for word in words(text))


@pytest.mark.parametrize(
    "piece", ['"', "'", "a'", "a.", ". ", "?", "...", "--", "::", "a ", " ", "\n", "U.S. ", "`", "a-"]
)
@pytest.mark.usefixtures("processor_limit")
def test_long_hostile_texts_take_linear_time(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    for function in (punkt_sentences, rule_sentences, tokens, words):
        function(text)
