"""Forks: a copy of a session in the same state. Neither sees later changes of the other."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ELSEWHERE, HERE, ready, records

from ludus import Environment, Failure, Game, Resources, Response, Verdict, tool
from ludus.models.replay import answers
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import awaited
from ludus.testing import answered_calls, configured

Row = dict[str, Any]


class Notes(Resources):
    """Holds an alias, a cycle and an object that lies in `shared`."""

    async def open(self, task: Any) -> None:
        self.pages: dict[str, list[str]] = {"first": []}
        self.current = self.pages["first"]
        self.owner = {"resources": self}
        self.index = self.shared["index"]

    @tool
    async def write(self, text: str) -> list[str]:
        """Write something down."""
        self.current.append(text)
        self.index.add(text)
        return self.current

    async def verify(self, task: Any, response: Response) -> float:
        return float(len(self.pages["first"]))


async def notes() -> Notes:
    session = Notes(None, {"index": set()})
    await session.open(None)
    session.seed = 7
    await session.write("a")
    return session


async def test_a_fork_is_in_the_same_state_and_independent_from_then_on():
    session = await notes()
    twin = session.fork()
    await twin.write("b")
    await session.write("c")
    assert (session.pages, twin.pages) == ({"first": ["a", "c"]}, {"first": ["a", "b"]})
    assert twin.seed == 7


async def test_a_fork_keeps_aliases_and_cycles():
    session = await notes()
    twin = session.fork()
    assert twin.current is twin.pages["first"]
    assert twin.owner["resources"] is twin


async def test_a_fork_shares_config_and_all_objects_in_shared():
    session = await notes()
    twin = session.fork()
    assert twin.config is session.config
    assert twin.shared is session.shared
    assert twin.index is session.shared["index"]


async def test_a_fork_can_be_forked():
    session = await notes()
    twin = session.fork().fork()
    await twin.write("b")
    assert session.pages == {"first": ["a"]}


class Held(Resources):
    """Defines `close`."""

    async def close(self) -> None:
        pass


class Holding(Resources):
    """Gets an attribute `line` that cannot be copied."""

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.fine = [1]


UNCOPYABLE = [threading.Lock(), (number for number in range(3)), open(__file__), threading.Thread()]  # noqa: SIM115
UNCOPYABLE[2].close()


def test_a_class_with_close_must_define_fork():
    with pytest.raises(Failure, match=r"Held defines close\(\), so the default fork.*define fork\(\)") as refused:
        Held().fork()
    assert refused.value.kind == "cannot_fork"


@pytest.mark.parametrize("thing", UNCOPYABLE, ids=lambda thing: type(thing).__name__)
def test_the_error_names_the_attribute_that_cannot_be_copied(thing):
    session = Holding()
    session.line = thing
    with pytest.raises(Failure, match=r"Holding\.line cannot be copied .*: define fork\(\)") as refused:
        session.fork()
    assert refused.value.kind == "cannot_fork"


def test_a_database_connection_cannot_be_copied_by_default():
    session = Holding()
    session.line = sqlite3.connect(":memory:")
    with pytest.raises(Failure, match="Connection"):
        session.fork()
    session.line.close()


def test_a_tool_may_not_be_called_fork():
    with pytest.raises(TypeError, match="hides a method of Resources"):

        class Kitchen(Resources):
            @tool
            async def fork(self) -> str:
                """Take a fork."""
                return "taken"


class Ledger(Resources):
    """Accounts, for the property test below."""

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.accounts: dict[str, list[int]] = {}

    def book(self, entry: tuple[str, int]) -> None:
        """Write an amount into an account; 0 closes it."""
        name, amount = entry
        if amount == 0:
            self.accounts.pop(name, None)
        else:
            self.accounts.setdefault(name, []).append(amount)


ENTRIES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), max_size=12)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_a_session_and_its_fork_end_as_if_the_other_did_not_exist(before, mine, theirs):
    session = Ledger()
    for entry in before:
        session.book(entry)
    twin = session.fork()
    for number in range(max(len(mine), len(theirs))):
        for side, entries in ((session, mine), (twin, theirs)):
            if number < len(entries):
                side.book(entries[number])
    for side, entries in ((session, mine), (twin, theirs)):
        alone = Ledger()
        for entry in (*before, *entries):
            alone.book(entry)
        assert side.accounts == alone.accounts


class ReplayedSession:
    """A session in which a recorded rollout is replayed turn by turn."""

    def __init__(self, row: Row, task: Any, session: Resources) -> None:
        self.row, self.task, self.session = row, task, session
        self.turns: list[Any] = answers(row) if isinstance(session, Game) else answered_calls(Response(row["response"]))

    async def play(self, turns: list[Any]) -> list[Any]:
        """Play turns, and return the result of each."""
        session = self.session
        if isinstance(session, Game):
            steps = [await session.advance(self.task, Response.of(*items)) for items in turns]
            return [(step.items(), step.reward, step.over, step.info) for step in steps]
        return [await session.call(call["name"], call["arguments"]) for call in turns]

    async def verdict(self) -> tuple[float, dict[str, float], list[float]]:
        """The reward, its components and the turn rewards."""
        verdict = Verdict.of(await awaited(self.session.verify, self.task, Response(self.row["response"])))
        return verdict.reward, verdict.components, verdict.turn_rewards

    async def fork(self) -> ReplayedSession:
        """The same rollout in a fork of the session."""
        return ReplayedSession(self.row, self.task, await awaited(self.session.fork))


@asynccontextmanager
async def opened(environment: Environment, row: Row, shared: Any) -> Any:
    """An open session in which to replay the record."""
    session = environment.session(shared)
    session.seed = row["rollout_seed"]
    task = environment.task(row)
    await awaited(session.open, task)
    if isinstance(session, Game):
        await session.begin(task)
    yield ReplayedSession(row, task, session)
    await awaited(session.close)


@pytest.mark.parametrize("name", HERE)
async def test_in_every_environment_a_fork_plays_on_like_a_session_that_was_never_forked(name):
    """Play a fork to its end, then the session, then a second fork. Each must get the results and the verdict of a
    session that was never forked."""
    environment, oracle = ready(name)
    async with shared_pool(), environment.share() as shared:
        played_before = await records(environment, oracle)
        assert played_before
        for _, row in played_before:
            async with opened(environment, row, shared) as whole:
                turns = whole.turns
                expected, worth = await whole.play(turns), await whole.verdict()
            for number in {0, 1, len(turns) // 2, len(turns) - 1} & {0, *range(len(turns))}:
                async with opened(environment, row, shared) as played:
                    assert await played.play(turns[:number]) == expected[:number]
                    first, second = await played.fork(), await played.fork()
                    for side in (first, played, second):
                        assert side.session.seed == row["rollout_seed"]
                        assert await side.play(turns[number:]) == expected[number:]
                        assert await side.verdict() == worth
                    for side in (first, second):
                        await awaited(side.session.close)


@pytest.mark.parametrize("compat", [False, True])
async def test_an_email_sent_in_a_forked_office_is_not_seen_in_the_original(compat):
    environment = configured("workplace_assistant", {"compat": compat})
    task = environment.task({"responses_create_params": {"input": "Help."}, "ground_truth": []})
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.open(task)
        twin = session.fork()
        sent = await twin.call("email_send_email", '{"recipient": "a@b.example", "subject": "s", "body": "b"}')
        assert "success" in sent
        assert (twin.office.edits, session.office.edits) == (1, 0)
        assert twin.office.tables is session.office.tables


async def test_a_conversation_does_not_remember_the_calls_of_its_fork():
    environment, oracle = ready("conversational_tool_use_simulation")
    (_, row), *_ = await records(environment, oracle)
    task = environment.task(row)
    call = next(item for item in row["response"]["output"] if item.get("type") == "function_call")
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.open(task)
        twin = session.fork()
        for side in (twin, session):
            assert await side.follow([*task.input, call]) is None
        assert await twin.follow([*task.input, call, call]) is not None
        assert await session.follow([*task.input, call]) is None


async def test_forking_a_gymnasium_environment_that_cannot_be_copied_is_refused():
    environment = configured("gymnasium", {"id": "oracles:Clockwork"})
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.open(None)
        with pytest.raises(Failure, match=r"Gymnasium\._game cannot be copied") as refused:
            session.fork()
        assert refused.value.kind == "cannot_fork"
        await session.close()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_sessions_on_a_server_cannot_be_forked(name):
    environment = Environment.load(name if name != "openenv" else "openenv:http://127.0.0.1:1")
    with pytest.raises(Failure, match=r"defines close\(\), so the default fork\(\) cannot copy it"):
        environment.resources(environment.config, {"source": None, "tools": {}}).fork()
