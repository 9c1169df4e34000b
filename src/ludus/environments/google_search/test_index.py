"""The local index: ranking, hostile queries, threads, reading a corpus, and kept indexes."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ludus import UserError
from ludus.environments.google_search import index as module
from ludus.environments.google_search.corpus import Document, read_corpus
from ludus.environments.google_search.index import Index, digest
from ludus.environments.google_search.local import Local
from ludus.environments.google_search.settings import SearchConfig

LETTERS = string.ascii_letters + string.digits + "äéßñøžДжю"
WORDS = st.text(LETTERS, min_size=1, max_size=12)


@pytest.fixture
def almanac(tmp_path: Path) -> Iterator[Index]:
    index = Index.build(tmp_path / "almanac", read_corpus())
    yield index
    index.close()


def titles(index: Index, query: str, limit: int = 10) -> list[str]:
    return [hit.title for hit in index.search(query, limit)]


def build(path: Path, *documents: tuple[str, str, str]) -> Index:
    path.unlink(missing_ok=True)
    return Index.build(path, [Document(*document) for document in documents])


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Who designed the lighthouse on Sunder Rock?", "Sunder Rock"),
        ("first newspaper in Tarrish", "Vessing Lantern"),
        ("LIGHTHOUSES", "Lighthouses"),
        ("shearwaters breeding", "Collared shearwater"),
        ("crell currency", "Crell"),
    ],
)
def test_the_best_document_comes_first(almanac: Index, query: str, title: str) -> None:
    assert titles(almanac, query)[0] == title


def test_every_hit_can_be_opened_and_contains_its_snippet(almanac: Index) -> None:
    hits = almanac.search("volcano of Ord", 5)
    assert len(hits) == 5
    for hit in hits:
        page = almanac.page(hit.url)
        assert page is not None
        assert page.title == hit.title
        assert all(part in page.text for part in hit.snippet.split(" ... "))
    assert almanac.page("https://almanac.example/nothing") is None


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        '"',
        "*",
        "NEAR(",
        "title:",
        "a OR",
        "AND",
        "NOT x",
        "^x",
        "{x} : y",
        "(",
        ")" * 999,
        "x'; DROP TABLE a",
        "\x00",
    ],
)
def test_query_syntax_in_a_query_does_no_harm(almanac: Index, query: str) -> None:
    assert len(titles(almanac, query)) <= 10
    assert titles(almanac, f"{query} crell")[0] == "Crell"


def test_query_operators_are_ignored(tmp_path: Path) -> None:
    index = build(tmp_path / "i", ("u1", "one", "apples"), ("u2", "two", "pears"))
    assert sorted(titles(index, "apples NOT pears")) == ["one", "two"]
    assert sorted(titles(index, "title: apples AND pears")) == ["one", "two"]
    assert titles(index, "app*") == []
    index.close()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_any_text_can_be_a_query(almanac: Index, query: str) -> None:
    assert len(almanac.search(query, 10)) <= 10
    almanac.page(query)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=8))
def test_every_document_is_found_by_each_of_its_words(tmp_path: Path, texts: list[list[str]]) -> None:
    documents = [(f"u{number}", f"t{number}", " ".join(words)) for number, words in enumerate(texts)]
    index = build(tmp_path / "i", *documents)
    for number, words in enumerate(texts):
        for word in words:
            assert f"t{number}" in titles(index, word, limit=len(texts)), word
    index.close()


def test_accents_and_word_endings_are_ignored(tmp_path: Path) -> None:
    index = build(tmp_path / "i", ("u", "t", "Cafés in Zürich"))
    for query in ("cafe", "cafés", "cafe\u0301s", "zurich", "ZÜRICH"):
        assert titles(index, query) == ["t"], query
    index.close()


def test_rare_words_choose_hits_and_common_words_order_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", 3)
    monkeypatch.setattr(module, "ENTRIES", 20)
    documents = [(f"u{n}", f"t{n}", "river stone") for n in range(10)]
    documents += [
        ("a", "a", "rare moss"),
        ("b", "b", "rare river"),
        ("c", "c", "river bank"),
        ("d", "d", "delta bank moor"),
    ]
    documents += [(f"m{n}", f"m{n}", "moor") for n in range(30)]
    index = build(tmp_path / "i", *documents)
    assert titles(index, "rare river") == ["b", "a"]
    assert titles(index, "river stone", 2) == ["t0", "t1"]
    assert len(titles(index, "river", 10)) == 3
    assert titles(index, "unknown") == []
    index.close()


async def test_concurrent_searches_give_the_same_results(almanac: Index) -> None:
    local = Local(almanac)
    queries = ["lighthouse", "comet", "slate quarry", "ferry"] * 25
    expected = [(await local.search(query)).hits for query in queries[:4]]
    many = await asyncio.gather(*[local.search(query) for query in queries])
    assert [results.hits for results in many] == expected * 25


def test_a_folder_of_text_markdown_html_and_jsonl_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "deep er").mkdir()
    (tmp_path / "a.txt").write_text("plain words")
    (tmp_path / "deep er" / "b.md").write_text("intro\n# The Heading\nmarked words")
    (tmp_path / "c.html").write_text(
        "<html><head><title>A &amp; B</title><style>p {}</style></head><body><script>no()</script>"
        "<p>First <b>bold</b>\nline.<p>Second.</body></html>"
    )
    (tmp_path / "d.jsonl").write_text(
        '{"text": "one line"}\n\n{"text": "t", "title": "T", "url": "https://x.example"}\n'
    )
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "e.png").write_bytes(b"\x89")
    base = "https://corpus.example/"
    assert list(read_corpus(tmp_path)) == [
        Document(f"{base}a.txt", "a", "plain words"),
        Document(f"{base}c.html", "A & B", "First bold line.\nSecond."),
        Document(f"{base}d.jsonl/1", "one line", "one line"),
        Document("https://x.example", "T", "t"),
        Document(f"{base}deep%20er/b.md", "The Heading", "intro\n# The Heading\nmarked words"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", "{", "a.jsonl:1: not JSON"),
        ("a.jsonl", '{"text": "x"}\n{"title": "x"}', "a.jsonl:2: text must be a string"),
        ("a.jsonl", '{"text": "x", "url": "u"}\n{"text": "y", "url": "u"}', "the same url"),
        ("a.jsonl", "", "holds no documents"),
        ("a.pdf", "", "has an unknown file type"),
        ("", "", "does not exist"),
    ],
)
async def test_a_bad_corpus_is_a_user_error(tmp_path: Path, name: str, content: str, says: str) -> None:
    path = tmp_path / (name or "absent")
    if name:
        path.write_text(content)
    with pytest.raises(UserError, match=says):
        async with Local.open(SearchConfig(corpus=path)):
            pass


async def test_an_index_is_kept_and_rebuilt_when_the_corpus_changes(tmp_path: Path) -> None:
    corpus, folder = tmp_path / "corpus.jsonl", tmp_path / "kept"
    config = SearchConfig(corpus=corpus, index_folder=folder)
    for text, files in (("first", 1), ("first", 1), ("second", 2)):
        corpus.write_text(f'{{"text": "{text}"}}')
        before = {file: file.stat().st_mtime_ns for file in folder.glob("*")}
        async with Local.open(config) as local:
            assert [hit.title for hit in (await local.search(text)).hits] == [text]
        assert len(list(folder.glob("*"))) == files
        assert all(file.stat().st_mtime_ns == time for file, time in before.items())


async def test_a_broken_kept_index_is_a_user_error_and_an_unfinished_one_is_deleted(tmp_path: Path) -> None:
    corpus, folder = tmp_path / "corpus.jsonl", tmp_path / "kept"
    config = SearchConfig(corpus=corpus, index_folder=folder)
    corpus.write_text('{"text": "x", "url": "u"}\n' * 2)
    with pytest.raises(UserError, match="the same url"):
        async with Local.open(config):
            pass
    assert list(folder.glob("*")) == []
    corpus.write_text('{"text": "x"}')
    (folder / f"{digest(read_corpus(corpus))}.sqlite3").write_text("no index at all" * 100)
    with pytest.raises(UserError, match="is not an index.*Delete it"):
        async with Local.open(config):
            pass


def test_the_digest_depends_on_field_boundaries_and_document_count() -> None:
    assert digest([Document("a", "b", "c")]) != digest([Document("ab", "", "c")])
    assert len({digest([Document("u", "t", "x")] * count) for count in range(3)}) == 3
