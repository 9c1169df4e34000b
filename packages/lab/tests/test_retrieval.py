"""Retrieval: search, pinned rows, exact answers, and citations that hold."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import ludus_lab.retrieval
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import needs_installed, oracle_rewards
from ludus_lab.retrieval import qualify as hooks
from ludus_lab.retrieval.corpus import FOLDER, FRONT_PAGE, Document, Passage, read_corpus
from ludus_lab.retrieval.generate import KINDS, questions
from ludus_lab.retrieval.ranking import Meanings, Words, open_library
from ludus_lab.retrieval.resources import plain
from ludus_qualify.run import qualify

import ludus
from ludus import ScriptedModel, UserError
from ludus.environment import Environment

ROWS = [
    json.loads(line) for line in Path(ludus_lab.retrieval.__path__[0], "data/example.jsonl").read_text().splitlines()
]
with_pages = needs_installed("ludus_lab.retrieval", str(FRONT_PAGE))
PAGE = "<html><head><title>Birds</title></head><body><script>x</script></div><h1>Kestrels</h1>\n\n{}</body></html>"


@pytest.fixture
def birds(tmp_path):
    """An environment over two small pages, and a row about them."""
    sentence = "<p>A kestrel can see a vole from 4821 steps away, in\nweak light &amp; rain.</p>"
    (tmp_path / "kestrels.html").write_text(PAGE.format(sentence))
    (tmp_path / "owls.html").write_text(
        PAGE.format("<p>Owls hear a mouse under the snow, and fly without a sound.</p>")
    )
    environment = Environment.load("retrieval").copy()
    environment.configure({"resources.folder": str(tmp_path)})
    document = read_corpus(tmp_path)["kestrels.html"]
    row = {
        "responses_create_params": {"input": "From how many steps does a kestrel see a vole?"},
        "expected_answer": "4821",
        "shows": ["from 4821 steps"],
        "document": document.name,
        "digest": document.digest,
    }
    return environment, row


def play(birds, *turns, **change):
    environment, row = birds
    return ludus.collect(environment, model=ScriptedModel(list(turns)), input=[{**row, **change}]).rollouts[0]


READ = {"call": "open", "arguments": {"document": "kestrels.html"}}
QUOTE = "see a vole from 4821 steps away, in weak light & rain."
RIGHT = f'<answer>4821</answer>\n<cite document="kestrels.html">{QUOTE}</cite>'


def test_a_right_answer_with_its_passage_is_paid(birds):
    rollout = play(birds, READ, RIGHT)
    assert (rollout.reward, rollout.verdict.values["problem"]) == (1.0, None)
    assert "4821 steps" in str(rollout.response.output)


def test_a_search_that_shows_the_document_counts_as_reading(birds):
    rollout = play(birds, {"call": "search", "arguments": {"query": "kestrel vole"}}, RIGHT)
    assert rollout.reward == 1.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<answer>4821</answer>", "0 citations"),
        (RIGHT.replace("vole", "mouse"), "do not stand"),
        (RIGHT.replace("kestrels.html", "owls.html"), "was not read"),
        ('<answer>4821</answer><cite document="kestrels.html">A kestrel can see a vole</cite>', "shows the answer"),
        (RIGHT + RIGHT * 3, "4 citations"),
        ('<answer>4821</answer><cite document="kestrels.html">4821</cite>', "12 to 600"),
        (f'{RIGHT}<cite document="../../../etc/passwd">root</cite>', None),
    ],
)
def test_the_verdict_says_what_is_wrong_with_the_citations(birds, text, problem):
    rollout = play(birds, READ, text)
    if problem is None:  # no such document can be named, so that is no citation
        assert rollout.reward == 1.0
    else:
        assert (rollout.reward, rollout.verdict.components["citations"]) == (0.0, 0.0)
        assert problem in rollout.verdict.values["problem"]


def test_a_row_of_another_text_fails_and_is_not_scored(birds):
    environment, row = birds
    for change in ({"digest": "0" * 32}, {"document": "gone.html"}):
        (failed,) = ludus.collect(environment, model=ScriptedModel(["x"]), input=[{**row, **change}]).failures()
        assert (failed.error.kind, failed.reward) == ("bad_row", None)


@pytest.mark.parametrize("document", ["../secret.html", "/etc/passwd", "", "kestrels"])
def test_only_documents_of_the_library_can_be_opened(birds, document):
    rollout = play(birds, {"call": "open", "arguments": {"document": document}}, "<answer>4821</answer>")
    assert "there is no document" in str(rollout.response.output)


def test_a_page_that_does_not_exist_is_named(birds):
    rollout = play(birds, {"call": "open", "arguments": {"document": "owls.html", "page": 9}}, "x")
    assert "owls.html has the pages 1 to 1" in str(rollout.response.output)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=8), st.text(max_size=60))
def test_any_query_ranks_passages_of_any_text(texts, query):
    passages = [Passage("a", number, text) for number, text in enumerate(texts)]
    ranked = Words(passages).best(query, 3)
    assert len(ranked) <= 3
    assert len(set(ranked)) == len(ranked)


def test_the_passage_with_the_rare_word_is_first():
    texts = ["the cat sat on the mat", "the dog sat on the log", "max_page_count limits the file"]
    words = Words([Passage("a", number, text) for number, text in enumerate(texts)])
    assert words.best("where is the dog", 1) == [1]
    assert words.best("page count", 1) == [2]
    assert words.best("zebra", 1) == []


@settings(max_examples=50)
@given(st.text(max_size=3000))
def test_the_passages_of_a_document_are_pieces_of_its_text(text):
    document = Document("a", "A", text)
    assert all(passage.text in "\n".join(text.splitlines()) for passage in document.passages())


@pytest.mark.parametrize(
    ("text", "same"), [("`517`.", "517"), ("1,000,000", "1000000"), ("sqlite3_open()", "SQLITE3_open")]
)
def test_spellings_of_an_answer_are_the_same(text, same):
    assert plain(text) == plain(same)


def test_without_the_package_the_error_is_one_line_with_the_command(tmp_path):
    with pytest.raises(UserError, match="has no documentation. Install it with: apt-get install sqlite3-doc"):
        read_corpus(tmp_path / "nothing")


def test_an_unknown_kind_is_named():
    with pytest.raises(UserError, match="data.kind 'gaps' is not a kind of question. Did you mean gap"):
        next(questions(0, kind="gaps"))


@with_pages
def test_questions_follow_from_the_seed_and_their_documents_show_the_answers():
    rows = list(islice(questions(5), 300))
    assert rows == list(islice(questions(5), 300)) != list(islice(questions(6), 300))
    assert {row["kind"] for row in rows} == set(KINDS)
    environment = Environment.load("retrieval")
    for row in rows:
        task = environment.task(row)
        assert len(hooks._quote(task)) >= 12
        assert task.expected_answer not in str(task.input[-1]["content"]).split()


@with_pages
def test_every_kind_has_many_questions():
    counts = {kind: sum(1 for _ in questions(0, kind=kind)) for kind in KINDS}
    assert counts["code"] > 70
    assert counts["release"] > 150
    assert counts["gap"] > 500


def installed_rows():
    """The example rows, or the end of the test where another version of the package is installed."""
    documents = open_library(FOLDER, "bm25").documents
    if any(documents[row["document"]].digest != row["digest"] for row in ROWS):
        pytest.skip(f"the example rows are made from {ROWS[0]['package']}, and another version is installed")
    return ROWS


@with_pages
async def test_forty_sessions_at_once_answer_and_cite():
    assert installed_rows()
    assert await oracle_rewards("retrieval", sessions=120, at_once=40) == [1.0] * 120


@with_pages
def test_search_finds_the_page_of_most_questions():
    library = open_library(FOLDER, "bm25")
    rows = installed_rows()
    hits = [
        row["document"]
        in {p.document for p in library.search(row["responses_create_params"]["input"][-1]["content"], 5)}
        for row in rows
    ]
    assert sum(hits) >= len(rows) // 2


@with_pages
@needs_installed("ludus_lab.retrieval", "wordllama")
def test_embeddings_find_a_passage_that_shares_no_word_with_the_query():
    texts = [
        "The dog chased a ball in the garden.",
        "Interest rates rose again in spring.",
        "Boil the pasta in salted water.",
    ]
    meanings = Meanings([Passage("a", number, text) for number, text in enumerate(texts)])
    assert meanings.best("cooking spaghetti", 1) == [2]
    assert meanings.best("a puppy playing outside", 1) == [0]


@with_pages
def test_the_verifier_is_trusted():
    assert installed_rows()
    card = qualify("retrieval", limit=6, odd=0)
    assert (card.failed, card.findings, card.not_shown) == ([], [], [])
    assert (card.oracle, card.false_positive.wrong, card.false_negative.wrong) == (1.0, 0, 0)
