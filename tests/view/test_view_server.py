"""The viewer's server: who gets in, what every reply forbids, and what the page is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import rollout_files
import viewed_runs
import waiting
from slow_transformers import SlowTransformers
from viewing import Visitor, until_indexed, viewing

from ludus.view.live import LiveRuns
from ludus.view.serving import Viewer
from ludus.view.written import written_payload


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    folder = tmp_path_factory.mktemp("runs")
    viewed_runs.write_run(folder / "first")
    viewed_runs.write_run(folder / "second", seed=2)
    viewed_runs.write_hostile_run(folder / "hostile")
    with viewing(folder) as found:
        until_indexed(found)
        yield found


@pytest.fixture(scope="module")
def visitor(viewer: Viewer) -> Visitor:
    return Visitor(viewer)


@pytest.fixture(scope="module")
def keys(visitor: Visitor) -> dict[str, str]:
    return {Path(run["name"]).name: run["key"] for run in visitor.ask("runs")["runs"]}


def test_a_link_works_once_and_becomes_a_cookie_that_no_script_reads(viewer: Viewer, visitor: Visitor):
    link = viewer.link().removeprefix(viewer.url)
    status, headers, _ = visitor.send("GET", link, Cookie="")
    assert status == 200
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    status, headers, body = visitor.send("GET", link, Cookie="")
    assert status == 403
    assert "set-cookie" not in headers
    assert b"A link works once" in body


@pytest.mark.parametrize("path", ["/api/runs", "/app.js", "/api/raw?run=x&id=1", "/health"])
def test_without_the_cookie_nothing_is_served(visitor: Visitor, path: str):
    assert visitor.send("GET", path, Cookie="")[0] == 403
    assert visitor.send("GET", path, Cookie="ludus_view_80=guess")[0] == 403


def test_other_hosts_and_other_origins_are_refused(visitor: Visitor):
    assert visitor.send("GET", "/api/runs", Host="attacker.example")[0] == 421
    assert b"ludus view --port 8800" in visitor.send("GET", "/api/runs", Host="attacker.example")[2]
    assert visitor.send("GET", "/api/runs", Origin="http://attacker.example")[0] == 403
    assert visitor.send("POST", "/api/note", {}, Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/runs", "/api/nothing", "/api/rollout?run=x"])
def test_every_reply_forbids_what_is_not_the_viewers_own(visitor: Visitor, path: str):
    _, headers, _ = visitor.send("GET", path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_a_browser_that_asks_for_the_usual_icon_gets_ours(visitor: Visitor):
    status, headers, body = visitor.send("GET", "/favicon.ico")
    assert (status, headers["content-type"]) == (200, "image/svg+xml")
    assert body == visitor.send("GET", "/icon.svg")[2]


def test_hostile_text_arrives_as_json_and_as_it_was_written(visitor: Visitor, keys: dict[str, str]):
    found = visitor.ask("rollout", run=keys["hostile"], id=1)
    assert found["items"][4]["content"][0]["text"] == viewed_runs.HOSTILE
    _, headers, body = visitor.send("GET", f"/api/raw?run={keys['hostile']}&id=1")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert json.loads(body)["note_of_judge"] == viewed_runs.HOSTILE


def test_a_huge_text_and_a_long_trajectory_arrive_in_pieces(visitor: Visitor, keys: dict[str, str]):
    huge = visitor.ask("rollout", run=keys["hostile"], id=2)["items"][0]["content"][0]["text"]
    assert huge["length"] == 3_000_000
    assert len(huge["cut"]) == 200_000
    long = visitor.ask("rollout", run=keys["hostile"], id=3)
    assert (len(long["items"]), long["items_total"]) == (200, 20_000)
    more = visitor.ask("items", run=keys["hostile"], id=3, skip=19_900)
    assert len(more["items"]) == 100
    assert more["items"][-2]["arguments"] == '{"n":9999}'


def test_a_lone_surrogate_is_shown_and_not_an_error(visitor: Visitor, keys: dict[str, str]):
    found = visitor.ask("rollout", run=keys["hostile"], id=4)
    assert found["items"][0]["content"] in ("a ? b", "a � b")


def test_a_rollout_has_its_repeats_its_place_and_its_time(visitor: Visitor, keys: dict[str, str]):
    found = visitor.ask("rollout", run=keys["first"], id=3, q="task:refund-000")
    assert [each["repeat"] for each in found["related"]["repeats"]] == [0, 1, 2, 3]
    assert found["around"] == {"previous": 2, "next": 4, "place": 3, "total": 4}
    assert found["timings"]["model"] > 0
    assert [stage for _, stage, _, _ in found["steps"]] == "open model tool model tool model verify".split()
    assert "steps" not in found["timings"]
    assert found["verdict"]["reward_components"]["polite"] == 0.5
    assert "prompt_ids" not in found["calls"][0]


def test_the_trainers_page_has_the_sequences_and_says_where_one_broke(visitor: Visitor, keys: dict[str, str]):
    found = visitor.ask("tokens", run=keys["first"], id=1)
    assert len(found["sequences"]) == 2
    for sequence in found["sequences"]:
        assert len(sequence["ids"]) == len(sequence["mask"]) == len(sequence["logprobs"]) == sequence["length"]
        assert sequence["trained"] == sum(sequence["mask"])
    assert [each["call"] for each in found["breaks"]] == [3]
    assert found["breaks"][0]["at"] == 70
    where, why = found["breaks"][0]["why"]
    assert where == "the first id that differs lies in what call 1 wrote"  # it wrote ids 60 to 72 or more
    assert why == "the new prompt is 2 ids shorter: text was dropped, as by a compaction"
    assert [call["entropy"] is None for call in found["calls"]] == [True, True, False]
    assert ["entropies" in span for span in found["spans"]] == [False, False, True]
    assert found["advantage"]["group"] == 4
    assert sum(span["to"] - span["from"] for span in found["spans"]) == sum(s["trained"] for s in found["sequences"])


def test_two_runs_are_compared_as_ludus_compare_does(viewer: Viewer, visitor: Visitor, keys: dict[str, str]):
    from ludus.compare.comparison import compare
    from ludus.compare.scores import Scores

    paths = [viewer.runs.runs[keys[name]].run.path for name in ("first", "second")]
    expected = compare(*map(Scores.read, paths))
    found = visitor.ask("compare", run=keys["first"], **{"with": keys["second"]})
    assert expected is not None
    _, other = found["runs"]
    assert other["result"]["sentence"] == expected.sentence()
    assert other["result"]["ci95"] == pytest.approx(list(expected.interval or ()))
    assert other["result"]["found"] == ("No difference" not in expected.sentence())
    assert len(found["tasks"]) == 24


def test_matches_are_downloaded_as_the_lines_of_the_journal(visitor: Visitor, keys: dict[str, str]):
    status, headers, body = visitor.send("GET", f"/api/matches.jsonl?run={keys['first']}&q=task%3Arefund-002")
    assert status == 200
    assert "attachment" in headers["content-disposition"]
    assert [json.loads(line)["task_id"] for line in body.splitlines()] == ["refund-002"] * 4


def test_a_note_is_kept_and_found(visitor: Visitor, keys: dict[str, str]):
    note = {"run": keys["second"], "id": 5, "note": "<b>reward hacking?</b>", "tags": ["hack", "ask Ann"]}
    assert visitor.send("POST", "/api/note", note)[0] == 200
    found = visitor.ask("rollout", run=keys["second"], id=5)
    assert (found["note"], found["tags"]) == ("<b>reward hacking?</b>", ["hack", "ask-Ann"])
    assert [row["id"] for row in visitor.ask("rollouts", run=keys["second"], q="note:hacking")["rollouts"]] == [5]
    assert visitor.send("POST", "/api/tag", {"run": keys["second"], "q": "reward:0", "tag": "zero"})[0] == 200
    zeros = visitor.ask("rollouts", run=keys["second"], q="tag:zero")
    assert zeros["total"] == visitor.ask("rollouts", run=keys["second"], q="reward:0")["total"] > 0


def test_a_completed_rollout_without_a_reward_is_in_no_histogram(visitor: Visitor, keys: dict[str, str]):
    found = visitor.ask("run", run=keys["hostile"])
    assert sum(found["histogram"]["counts"]) == 4
    assert visitor.ask("rollouts", run=keys["hostile"], q="reward:none outcome:completed")["total"] == 2


@pytest.mark.parametrize("number", [True, 2**64, "1", None])
def test_a_note_without_a_number_is_refused(visitor: Visitor, keys: dict[str, str], number: Any):
    assert visitor.send("POST", "/api/note", {"run": keys["first"], "id": number, "note": "", "tags": []})[0] == 422


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/run?run=nothing", 404),
        ("/api/rollout?run={first}&id=99999", 404),
        ("/api/rollout?run={first}&id=-1", 422),
        ("/api/rollouts?run={first}&q=nofilter:1", 400),
        ("/api/rollouts?run={first}&sort=id;drop", 400),
        ("/api/matches.jsonl?run={first}&q=reward:x", 400),
        ("/api/rollouts?run={first}&q=" + "reward:0+" * 1000, 400),
        ("/api/rollout?run={first}&id=1&q=" + "a+" * 1000, 400),
        ("/api/../app.py", 404),
        ("/static/app.js", 404),
    ],
)
def test_a_wrong_question_gets_a_sentence(visitor: Visitor, keys: dict[str, str], path: str, status: int):
    found, _, body = visitor.send("GET", path.replace("{first}", keys["first"]))
    assert found == status
    assert json.loads(body)["detail"]


ROUTES = ("run", "rollouts", "rollout", "items", "tokens", "written", "compare", "experiment", "search", "task", "raw")
NUMBERS = ["-1", "0", "9" * 30, "9" * 5000, "1e9", "NaN", "²", "٣", "1_0", " 1", ""]
ODD = [*NUMBERS, "\x00", "\ud800", "%", "%_", "' OR 1=1 --", '"', "reward:>", "reward:nan", "reward:1e999", "(" * 999]
ODD += ['"a" AND NEAR("b"', "*", "a*", "-", "NOT", "tag:", "tool:\x00", "ids:" + "9" * 400, "{0.__class__}", "\u202e"]


@pytest.mark.slow
@pytest.mark.parametrize("route", [*ROUTES, "matches.jsonl"])
def test_no_question_is_an_error_of_ours(visitor: Visitor, keys: dict[str, str], route: str):
    for odd in ODD:
        text = quote(odd.encode("utf-8", "surrogatepass"))
        for names in (("q", "sort", "with"), ("id",), ("skip", "at", "thread", "task", "figure"), ("run",)):
            usual = {"id": "1", "run": keys["first"]}
            asked = {
                **{name: value for name, value in usual.items() if name not in names},
                **dict.fromkeys(names, text),
            }
            question = "&".join(f"{name}={value}" for name, value in asked.items())
            status, _, body = visitor.send("GET", f"/api/{route}?{question}")
            assert status < 500, (route, names, odd[:80], body[:300])


BODIES: list[Any] = [[], "text", 1, {}, {"run": []}, {"run": {"a": 1}}, {"id": 1e400}, {"id": 10**400}, {"q": 1}]


@pytest.mark.parametrize("route", ["note", "tag", "control", "play/start", "play/say", "play/look", "play/verdict"])
def test_no_body_is_an_error_of_ours(visitor: Visitor, keys: dict[str, str], route: str):
    odd = [
        {"run": keys["hostile"], "id": 1, "note": odd, "tags": [odd, 1, None, {}], "q": odd, "tag": odd} for odd in ODD
    ]
    for body in (*BODIES, *odd):
        status, _, reply = visitor.send("POST", f"/api/{route}", body)
        assert status < 500, (route, str(body)[:200], reply[:300])


def test_without_an_offered_environment_play_names_the_flag(visitor: Visitor):
    assert visitor.ask("play") == {"environments": [], "model": None}
    for path in ("start", "look", "say", "verdict", "leave"):
        status, _, body = visitor.send("POST", f"/api/play/{path}", {"environment": "mcqa"})
        assert status == 403
        assert b"--play ENV" in body


@pytest.mark.parametrize("asked", ["written", "tokens"])
def test_no_request_waits_for_a_tokenizer_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    transformers = SlowTransformers().install(monkeypatch)
    viewed_runs.write_run(tmp_path / "first", tasks=1)
    with viewing(tmp_path, tokenizer="models/slow") as viewer:
        until_indexed(viewer)
        visitor = Visitor(viewer)
        (run,) = visitor.ask("runs")["runs"]
        assert not transformers.asked.is_set()  # the list of runs needs no tokenizer
        visitor.ask("rollout", run=run["key"], id=1)
        assert transformers.asked.wait(waiting.CEILING)
        loading = visitor.ask(asked, run=run["key"], id=1)
        assert loading["stale"]
        assert loading["tokenizer"] is None
        assert loading["tokenizer_note"] == "The tokenizer models/slow is loading. Until then you see ids."
        transformers.may_load.set()
        waiting.until(lambda: not visitor.ask(asked, run=run["key"], id=1)["stale"])
        loaded = visitor.ask(asked, run=run["key"], id=1)
        assert (loaded["tokenizer"], loaded["tokenizer_note"]) == ("models/slow", None)


def test_a_tokenizer_that_cannot_be_loaded_is_one_line_and_ids_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = SlowTransformers().install(monkeypatch)
    transformers.error = KeyError("general.architecture\nmore")
    transformers.may_load.set()
    viewed_runs.write_run(tmp_path / "first", tasks=1)
    with viewing(tmp_path, tokenizer="models/broken.gguf") as viewer:
        until_indexed(viewer)
        visitor = Visitor(viewer)
        (run,) = visitor.ask("runs")["runs"]
        waiting.until(lambda: not visitor.ask("written", run=run["key"], id=1)["stale"])
        note = visitor.ask("written", run=run["key"], id=1)["tokenizer_note"]
        assert note.startswith("cannot load the tokenizer models/broken.gguf: 'general.architecture")
        assert note.endswith("Name a folder: --tokenizer DIR")
        assert "\n" not in note
        assert visitor.ask("tokens", run=run["key"], id=1)["sequences"][0]["pieces"] is None


class Letters:
    """A tokenizer whose tokens are letters."""

    name = "letters"

    def pieces(self, ids: list[int]) -> list[str]:
        return [chr(token) for token in ids]


def test_ids_become_text_with_a_tokenizer_and_get_the_alternatives_of_the_answer(tmp_path: Path):
    entries = [
        {
            "token": "o",
            "logprob": -0.2,
            "top_logprobs": [{"token": "o", "logprob": -0.2}, {"token": "a", "logprob": -2.0}],
        },
        {"token": "k", "logprob": -0.1},
    ]
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ok", "logprobs": entries}],
    }
    call = {"items": 1, "prefix": 0, "prompt_ids": [1], "generated_ids": [60, 111, 107], "logprobs": [-0.3, -0.2, -0.1]}
    calls = [{**call, "policy_version": 4}, {"items": 0}]
    rollout_files.write(tmp_path / "rollouts.jsonl", [rollout_files.rollout("t", 0, 1.0, items=[answer], calls=calls)])
    runs = LiveRuns([tmp_path], {})
    runs.index_all()
    (run,) = runs.runs.values()
    tokens, nothing = written_payload(run.index, 1, Letters())["calls"]  # type: ignore[arg-type]
    assert tokens["policy"] == "4"
    assert tokens["tokens"] == [
        ["<", 60, -0.3, None],
        ["o", 111, -0.2, [["o", -0.2], ["a", -2.0]]],
        ["k", 107, -0.1, None],
    ]
    assert nothing["tokens"] is None
    (without, _) = written_payload(run.index, 1, None)["calls"]
    assert [token[0] for token in without["tokens"]] == ["o", "k"]


def test_threads_of_a_rollout_are_listed_and_read_one_by_one(tmp_path: Path):
    viewed_runs.write_run_with_threads(tmp_path / "run")
    with viewing(tmp_path) as viewer:
        until_indexed(viewer)
        visitor = Visitor(viewer)
        (run,) = visitor.ask("runs")["runs"]
        shown = visitor.ask("rollout", run=run["key"], id=1)
        thread = visitor.ask("items", run=run["key"], id=1, thread="agent-1")
        nothing = visitor.ask("items", run=run["key"], id=1, thread="../main")
    listed = [(each["name"], each["kind"], each["parent"], each["calls"]) for each in shown["threads"]]
    assert listed[:2] == [("agent-1", "agent", "main", 2), ("agent-2", "agent", "agent-1", 1)]
    assert shown["restored"] == {"restored_items": "2", "kept_calls": "1"}
    assert (thread["total"], [call["at"] for call in thread["calls"]]) == (5, [2, 4])
    assert thread["items"][0] == {"role": "system", "content": "You search."}
    assert nothing == {"items": [], "skip": 0, "total": 0, "calls": []}
