"""The calls of a program are sorted into conversations, whatever their order and however the program writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conversations import json_objects, names, words
from hypothesis import given
from hypothesis import strategies as st

from ludus.agents.program_conversation import ProgramConversation
from ludus.agents.program_threads import ProgramConversations
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.response import Item, Response, function_call, function_call_output, message
from ludus.rollout import Job, Rollout
from ludus.task import Task
from ludus.thread import Thread
from ludus.tokens import TokenLog, Tokens
from ludus.train.group import TrainingGroup, TrainingMember

PROMPT = [{"type": "message", "role": "user", "content": "Fix the bug."}]
TOOLS = [{"type": "function", "name": "bash"}]


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


class Program:
    """Sends requests as a program would, and the model answers what it is told to."""

    def __init__(self, **settings: Any) -> None:
        self.conversations = ProgramConversations(PROMPT, **settings)
        self.asked: list[list[Item]] = []

    def ask(self, items: list[Item], *answer: Item, **params: Any) -> ProgramConversation:
        """Send a request; the model writes one id for each of its items, after the ids of what it was asked."""
        conversation, turn = self.conversations.join(items, params)
        self.asked.append(turn.items)
        tokens = Tokens([*map(hash_id, turn.items)], [*map(hash_id, answer)], [-0.5] * len(answer))
        response = Response.of(*answer, tokens=tokens)
        call: dict[str, Any] = {"items": len(answer)}
        conversation.calls.append(call | conversation.log.add(tokens))
        conversation.take(items, turn, response)
        return conversation

    def threads(self) -> list[Thread]:
        return self.conversations.threads()

    def kinds(self) -> list[tuple[str, str, str | None]]:
        return [(thread.name, thread.kind, thread.parent) for thread in self.threads()]


def hash_id(item: Item) -> int:
    return 1000 + hash(json.dumps(item, sort_keys=True)) % 1000


def respelled(item: Item) -> Item:
    """An item as programs send it back: JSON with spaces, and no ids."""
    sent = {key: value for key, value in item.items() if key not in ("id", "status")}
    if "arguments" in sent:
        sent["arguments"] = json.dumps(json.loads(sent["arguments"]), indent=1)
    return sent


@st.composite
def scripts(draw: Any) -> list[list[Item]]:
    """For each of up to four conversations: the answers of the model."""
    count = draw(st.integers(1, 4))
    answers = st.one_of(
        words.map(lambda text: message(f"said: {text}")),
        st.tuples(names, json_objects).map(lambda call: function_call(call[0], call[1], call_id="c")),
    )
    return [draw(st.lists(answers, min_size=1, max_size=5)) for _ in range(count)]


@given(scripts(), st.randoms(use_true_random=False))
def test_interleaved_conversations_are_told_apart(script: list[list[Item]], random: Any) -> None:
    program = Program()
    sent: list[list[Item]] = [[user(f"Part {number} of the work.")] for number in range(len(script))]
    left = [list(answers) for answers in script]
    while any(left):
        number = random.choice([number for number, answers in enumerate(left) if answers])
        answer = left[number].pop(0)
        program.ask(list(sent[number]), answer, tools=TOOLS)
        is_call = answer["type"] == "function_call"
        reply = function_call_output("c", f"output {len(sent[number])}") if is_call else user(f"{len(sent[number])}?")
        sent[number] += [respelled(answer), reply]
    threads = program.threads()
    assert len(threads) == len(script)
    assert sorted(len(thread.calls) for thread in threads) == sorted(map(len, script))
    for thread in threads:
        number = next(number for number, items in enumerate(sent) if items[0] == thread.items[0])
        wrote = [item for call in thread.calls for item in thread.items[call["at"] : call["at"] + call["items"]]]
        assert wrote == script[number], "every turn as the model wrote it"


def test_sub_agents_a_title_and_a_commit_message_are_threads_of_their_own() -> None:
    program = Program(is_side=lambda text: "commit message" in text)
    program.ask([user("Title for: Fix the bug."), *PROMPT], message("Bug"))
    calls = [
        function_call("Task", {"prompt": "Read the tests of a.py"}, call_id="a"),
        function_call("Task", {"prompt": "Read the tests of b.py"}, call_id="b"),
    ]
    program.ask(PROMPT, *calls, tools=TOOLS)
    for letter in "ab":
        program.ask([user(f"Read the tests of {letter}.py")], message(f"{letter} is fine"), instructions="You read.")
    outputs = [function_call_output(letter, f"{letter} is fine") for letter in "ab"]
    program.ask([*PROMPT, *map(respelled, calls), *outputs], message("Done."), tools=TOOLS)
    program.ask([user("Write a commit message for: diff")], message("Fix"), tools=TOOLS)
    assert program.kinds() == [
        ("main", "main", None),
        ("side-1", "side", None),
        ("agent-1", "agent", "main"),
        ("agent-2", "agent", "main"),
        ("side-2", "side", None),
    ]
    main = program.threads()[0]
    assert main.items == [*calls, *outputs, message("Done.")], "the prompt of the task stands before the trajectory"


def test_a_summary_continues_the_main_thread_and_starts_a_new_sequence() -> None:
    program, call = Program(), function_call("bash", {"command": "ls"}, call_id="c")
    program.ask(PROMPT, call, tools=TOOLS)
    summary = "What was done so far: " + "the files were listed, and a bug was found in a.py. " * 3
    history = [
        *PROMPT,
        respelled(function_call("bash", {"command": "ls"}, call_id="c")),
        function_call_output("c", "a"),
    ]
    program.ask([*history, user("Summarise.")], message(summary), tools=TOOLS)
    program.ask([user(f"Continue from this: {summary}")], message("All done."), tools=TOOLS)
    (main,) = program.threads()
    assert [call.get("compacted", False) for call in main.calls] == [False, False, True]
    assert main.items[-1] == message("All done.")
    assert [(part.kind, len(part.ids)) for part in sequences_of(main)] == [("main", 5), ("compacted", 2)]


@pytest.mark.parametrize("keeps_a_turn", [False, True])
def test_a_summary_from_another_conversation_continues_the_main_thread_and_is_trained(keeps_a_turn: bool) -> None:
    program, call = Program(), function_call("bash", {"command": "ls -l the/tests"}, call_id="c")
    program.ask(PROMPT, call, tools=TOOLS)
    first = [*PROMPT, respelled(call), function_call_output("c", "a")]
    program.ask(first, function_call("bash", {"command": "ls"}, call_id="d"), tools=TOOLS)
    answer = "The sub-agent found nothing in the documentation that concerns the bug, after reading all of its pages."
    program.ask([user("Read the docs.")], message(answer), tools=[{"type": "function", "name": "read"}])
    summary = "What was done so far: " + "the files were listed, and a bug was found in a.py. " * 3
    program.ask([user("Summarise: bash ls -l the/tests, and its output")], message(summary))
    program.ask(
        [*(first if keeps_a_turn else []), user(f"Continue: {summary}. {answer}")], message("All done."), tools=TOOLS
    )
    assert program.kinds() == [("main", "main", None), ("agent-1", "agent", None), ("compacted-1", "compacted", "main")]
    main = program.threads()[0]
    assert main.items[-1] == message("All done.")
    assert [call.get("compacted", False) for call in main.calls] == [False, False, True]
    assert [part.kind for part in sequences_of(main)] == ["main", "compacted"]


def sequences_of(main: Thread, *others: Thread) -> list[Any]:
    job = Job("a-0", "a", 0, Task.unchecked({"responses_create_params": {"input": PROMPT}}), {})
    rollout = Rollout(job, calls=main.calls, threads=list(others))
    rollout.judge(Verdict(1.0))
    return list(Rollout.from_row(json.loads(rollout.encode())).sequences())


def test_an_answer_that_the_program_drops_is_not_in_what_the_model_sees_next() -> None:
    program = Program()
    program.ask(PROMPT, message("Nonsense."), tools=TOOLS)
    program.ask(PROMPT, message("Better."), tools=TOOLS)
    assert program.asked[1] == PROMPT
    (main,) = program.threads()
    assert [item["content"][0]["text"] for item in main.items] == ["Nonsense.", "Better."]


def test_a_conversation_that_forks_gives_two_threads_and_the_longer_one_is_main() -> None:
    program = Program()
    program.ask(PROMPT, message("First."), tools=TOOLS)
    base = [*PROMPT, respelled(message("First."))]
    program.ask([*base, user("One way.")], message("One."), tools=TOOLS)
    program.ask([*base, user("Other way.")], message("Other."), tools=TOOLS)
    program.ask([*base, user("One way."), message("One."), user("On.")], message("Two."), tools=TOOLS)
    main, other = program.threads()
    assert (len(main.calls), other.kind, len(other.calls)) == (3, "agent", 1)
    assert other.items == [*PROMPT, message("First."), user("Other way."), message("Other.")]


def test_side_threads_are_recorded_and_not_trained_on() -> None:
    program = Program()
    program.ask(PROMPT, message("Done."), tools=TOOLS)
    program.ask([user("A title, please.")], message("Bugs"))
    main, side = program.threads()
    assert [part.thread for part in sequences_of(main, side)] == ["main"]


@pytest.mark.parametrize("which", ["main", "side"])
def test_only_a_failed_call_of_the_main_thread_is_a_failure(which: str) -> None:
    program = Program()
    main = program.ask(PROMPT, message("On it."), tools=TOOLS)
    side = program.ask([user("A title, please.")], message("Bugs"))
    (main if which == "main" else side).failure = Failure("http_500", "gone")
    assert (program.conversations.failure() is not None) == (which == "main")


def test_a_first_call_that_failed_and_is_repeated_is_recorded_with_what_it_asked() -> None:
    program = Program()
    asked = [user("You are a program. Fix the bug.")]
    program.conversations.join(asked, {})[0].failure = Failure("http_500", "gone")
    conversation = program.ask(asked, message("Done."))
    assert conversation.record == [*asked, message("Done.")]


def test_a_main_thread_that_never_got_an_answer_has_failed_although_a_side_call_was_answered() -> None:
    program = Program()
    conversation, _ = program.conversations.join(PROMPT, {"tools": TOOLS})
    program.ask([user("A title, please.")], message("Bugs"))
    conversation.failure = Failure("http_500", "gone")
    assert program.conversations.failure() is conversation.failure


def test_a_thread_with_a_reward_of_its_own_has_an_advantage_of_its_own() -> None:
    members, job = [], Job("a-0", "a", 0, Task.unchecked({}), {})
    for reward, own in ((1.0, {}), (0.0, {"agent-1": 1.0})):
        call = {"items": 1, **TokenLog().add(Tokens([1], [2], [-0.1], "3"))}
        thread = Thread("agent-1", "agent", calls=[{**call, "policy_version": "4"}])
        rollout = Rollout(job, calls=[call], threads=[thread, Thread("side-1", "side", calls=[call])])
        rollout.judge(Verdict(reward, thread_rewards=own))
        members.append(TrainingMember(rollout))
    group = TrainingGroup("a", {}, 1, members)
    (first, inherited), (second, given) = group.sequence_advantages()
    assert first == inherited == given > 0 > second
    assert [member.versions for member in members] == [[3, 4], [3, 4]]
    assert [len(values) for values in group.turn_advantages()] == [2, 2]


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_turn_rewards_are_those_of_the_main_thread_and_other_threads_keep_their_own_reward(discount: float) -> None:
    members, job = [], Job("a-0", "a", 0, Task.unchecked({}), {})
    for reward, turns, own in ((1.0, [0.0, 1.0], {}), (0.0, [0.5, -0.5], {"agent-2": 1.0})):
        log = TokenLog()
        calls = [{"items": 1, **log.add(Tokens([*range(length)], [9], [-0.1]))} for length in (1, 3)]
        call = {"items": 1, **TokenLog().add(Tokens([1], [2], [-0.1]))}
        threads = [Thread(name, "agent", calls=[call, call]) for name in ("agent-1", "agent-2")]
        rollout = Rollout(job, calls=calls, threads=threads)
        rollout.judge(Verdict(reward, turn_rewards=turns, thread_rewards=own))
        members.append(TrainingMember(rollout))
    first, second = TrainingGroup("a", {}, 1, members).turn_advantages(discount)
    assert first[2:] == [0.5, 0.5, 0.5, 0.5], "the reward of the rollout, not the worth of its first turn"
    assert second[2:] == [-0.5, -0.5, 0.5, 0.5]
