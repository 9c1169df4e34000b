"""The office is graded by the final state of its tables, whatever the model says."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import ludus
from ludus import Environment, Failure, Response, ScriptedModel, UserError, Verdict
from ludus.environments.workplace_assistant.resources import WorkplaceAssistant
from ludus.environments.workplace_assistant.tables import Tables
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, function_call_output, message
from ludus.testing import disagreements, judge, shared_path, shared_rows

NAME = "workplace_assistant"
PERSON = "alma.reyes@harbourlight.example"
MAIL = ("email_send_email", {"recipient": PERSON, "subject": "Lunch", "body": "At noon?"})
OTHER_MAIL = ("email_send_email", {"recipient": PERSON, "subject": "Dinner", "body": "At eight?"})
MEETING = (
    "calendar_create_event",
    {"event_name": "Talk", "participant_email": PERSON, "event_start": "2023-12-06 09:30:00", "duration": "60"},
)
DELETION = ("email_delete_email", {"email_id": "00000007"})
CUSTOMER = (
    "customer_relationship_manager_add_customer",
    {"customer_name": "Ida Berg", "assigned_to_email": PERSON, "status": "Lead"},
)
Call = tuple[str, dict[str, Any]]

load = functools.cache(Tables.load)
environment_named = functools.cache(Environment.load)


class Preloaded(WorkplaceAssistant):
    """The office with tables that are read once for all tests."""

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Tables]:
        yield load(config.tables)


def office(tables: Path | None = None) -> Environment:
    environment = replace(environment_named(NAME), resources=Preloaded)
    environment.configure({"resources.tables": tables})
    return environment


def row(*actions: Call, **fields: Any) -> dict[str, Any]:
    written = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in actions]
    return {"responses_create_params": {"input": "Please help me."}, "ground_truth": written, **fields}


def changed(call: Call, **values: Any) -> Call:
    return call[0], {**call[1], **values}


def answer(*calls: Call, run: bool = True) -> Response:
    """A response with calls; each has an output if `run` is true."""
    items = []
    for number, (name, arguments) in enumerate(calls):
        items.append(function_call(name, json.dumps(arguments), call_id=f"call_{number}"))
        if run:
            items.append(function_call_output(f"call_{number}", ""))
    return Response.of(*items, message("Done."))


async def verdict(wanted: dict[str, Any], answered: Response | str, **settings: Any) -> Verdict:
    outcome = await judge(office(), wanted, answered, **settings)
    assert isinstance(outcome, Verdict), outcome
    return outcome


async def reward(wanted: list[Call], done: list[Call], **settings: Any) -> float:
    return (await verdict(row(*wanted), answer(*done), **settings)).reward


async def rewards(wanted: list[Call], done: list[Call]) -> tuple[float, float]:
    """The reward by default, and the reward with `compat`."""
    return await reward(wanted, done), await reward(wanted, done, compat=True)


async def refusal(wanted: dict[str, Any], **settings: Any) -> str:
    failure = await judge(office(), wanted, "Done.", **settings)
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"
    return failure.cause


async def test_taking_the_right_actions_earns_the_reward() -> None:
    for call in (MAIL, MEETING, DELETION, CUSTOMER):
        assert await rewards([call], [call]) == (1.0, 1.0)
    assert await rewards([], []) == (1.0, 1.0)


async def test_anything_else_earns_nothing_whatever_the_model_claims() -> None:
    assert (await verdict(row(MAIL), "I have sent the email.")).reward == 0.0
    assert await rewards([MAIL], []) == (0.0, 0.0)
    assert await rewards([], [MAIL]) == (0.0, 0.0)
    assert await rewards([MAIL], [MAIL, MAIL]) == (0.0, 0.0)
    assert await rewards([MAIL], [changed(MAIL, body="At noon? ")]) == (0.0, 0.0)
    assert await rewards([MAIL, DELETION], [MAIL]) == (0.0, 0.0)
    assert await rewards([DELETION], [changed(DELETION, email_id="00000008")]) == (0.0, 0.0)


async def test_a_verdict_names_the_tables_that_differ() -> None:
    graded = await verdict(row(MAIL, MEETING), answer(CUSTOMER))
    assert graded.values == {"differing_tables": ["emails", "events", "customers"]}


async def test_reads_and_refused_calls_do_not_matter() -> None:
    looks: list[Call] = [("email_search_emails", {"query": "the"}), ("analytics_total_visits_count", {})]
    mistakes: list[Call] = [changed(DELETION, email_id="none"), ("email_send_email", {}), ("no_such_tool", {})]
    assert await rewards([MAIL], [*looks, *mistakes, MAIL, *looks]) == (1.0, 1.0)


async def test_letter_case_matters_only_in_columns_with_fixed_values() -> None:
    assert await rewards([MAIL], [changed(MAIL, subject="LUNCH", body="AT NOON?")]) == (1.0, 1.0)
    update = ("project_management_update_task", {"task_id": "00000003", "field": "task_name", "new_value": "Sweep"})
    assert await rewards([update], [changed(update, new_value="SWEEP")]) == (1.0, 1.0)
    status = ("customer_relationship_manager_update_customer", {"customer_id": "00000003", "field": "status"})
    wanted = next(value for value in ("Won", "Lost") if value != load().customers.by_id["00000003"]["status"])
    assert await rewards([changed(status, new_value=wanted)], [changed(status, new_value=wanted.lower())]) == (0.0, 0.0)


async def test_a_change_that_was_undone_does_not_count() -> None:
    undone: Call = ("calendar_delete_event", {"event_id": "00000180"})
    assert await rewards([], [MEETING, undone]) == (1.0, 1.0)
    name = load().events.by_id["00000004"]["event_name"]
    update = ("calendar_update_event", {"event_id": "00000004", "field": "event_name", "new_value": "Other"})
    assert await rewards([], [update, changed(update, new_value=name)]) == (1.0, 1.0)


async def test_a_reply_equals_a_new_email_with_the_same_content() -> None:
    email = load().emails.by_id["00000009"]
    reply: Call = ("email_reply_email", {"email_id": "00000009", "body": "Yes."})
    values = {"recipient": email["sender/recipient"], "subject": f"RE: {email['subject']}", "body": "Yes."}
    assert await rewards([reply], [("email_send_email", values)]) == (1.0, 1.0)


async def test_a_call_that_was_never_run_does_not_count_except_in_compat() -> None:
    assert (await verdict(row(MAIL), answer(MAIL, run=False))).reward == 0.0
    assert (await verdict(row(MAIL), answer(MAIL, run=False), compat=True)).reward == 1.0
    cut = {"calls": [{"name": MAIL[0], "arguments": MAIL[1]}], "incomplete": "max_output_tokens"}
    (rollout,) = (await ludus.collect_async(NAME, model=ScriptedModel([cut]), input=[row(MAIL)])).rollouts
    assert (rollout.reward, rollout.stop_reason) == (0.0, "max_output_tokens")


async def test_the_order_of_independent_actions_does_not_matter_except_in_compat() -> None:
    plot = ("analytics_create_plot", {"time_min": "2023-10-01", "time_max": "2023-10-31", "plot_type": "bar"})
    plots = [changed(plot, value_to_plot=value) for value in ("total_visits", "user_engaged")]
    assert await rewards(plots, plots[::-1]) == (1.0, 0.0)
    assert await rewards([MAIL, OTHER_MAIL], [OTHER_MAIL, MAIL]) == (1.0, 0.0)
    assert await rewards([DELETION, MAIL], [MAIL, DELETION]) == (1.0, 0.0)
    assert await rewards([MEETING, CUSTOMER], [CUSTOMER, MEETING]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("last", "other", "new"),
    [
        (("calendar_delete_event", {"event_id": "00000179"}), {"event_id": "00000178"}, MEETING),
        (("customer_relationship_manager_delete_customer", {"customer_id": "00000119"}), None, CUSTOMER),
        (("email_delete_email", {"email_id": "00000239"}), None, MAIL),
    ],
)
async def test_a_new_row_with_the_number_of_the_deleted_last_row_is_another_state(
    last: Call, other: dict[str, Any] | None, new: Call
) -> None:
    """After the highest number is deleted, the next new row gets that number."""
    assert await rewards([last, new], [last, new]) == (1.0, 1.0)
    assert await rewards([last, new], [new, last]) == (0.0, 0.0)
    assert await rewards([new], [last, new]) == (0.0, 0.0)
    if other is not None:
        earlier = (last[0], other)
        assert await rewards([earlier, new], [new, earlier]) == (1.0, 1.0)


async def test_deleting_a_sent_mail_does_not_unsend_it_except_in_compat() -> None:
    copy: Call = ("email_delete_email", {"email_id": "240"})
    assert await reward([], [MAIL, copy]) == 0.0
    assert await reward([MAIL], [MAIL, copy]) == 0.0
    assert await reward([], [MAIL, copy], compat=True) == 1.0


@pytest.mark.parametrize("start", ["2023-12-06T09:30:00", "2023-12-06 09:30", "2023-12-06T09:30"])
async def test_the_start_of_an_event_is_compared_as_a_moment_except_in_compat(start: str) -> None:
    assert await rewards([MEETING], [changed(MEETING, event_start=start)]) == (1.0, 0.0)


async def test_an_event_at_another_moment_earns_nothing() -> None:
    for start in ("2023-12-06 09:31:00", "2023-12-06 09:30:01", "2023-12-06", "2023-12-07 09:30:00"):
        assert await rewards([MEETING], [changed(MEETING, event_start=start)]) == (0.0, 0.0)


async def test_a_duration_may_be_a_number_except_in_compat() -> None:
    assert await rewards([MEETING], [changed(MEETING, duration=60)]) == (1.0, 0.0)
    assert await rewards([changed(MEETING, duration=30)], [changed(MEETING, duration=60)]) == (0.0, 1.0)


async def test_null_arguments_count_as_missing_except_in_compat() -> None:
    assert await rewards([CUSTOMER], [changed(CUSTOMER, notes=None)]) == (1.0, 0.0)
    assert await rewards([MAIL], [changed(MAIL, cc=None)]) == (1.0, 0.0)
    assert await rewards([CUSTOMER], [changed(CUSTOMER, notes="")]) == (1.0, 1.0)


async def test_actions_given_as_a_text_are_refused_except_in_compat() -> None:
    wanted = {**row(), "ground_truth": "[]"}
    assert await refusal(wanted) == "ground_truth: Value error, it must be a list of actions"
    assert (await verdict(wanted, "Done.", compat=True)).reward == 1.0


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"name": "email_send_email", "arguments": "oops"}, "the arguments of email_send_email are not a JSON object"),
        ({"name": "email_send_email", "arguments": "[]"}, "the arguments of email_send_email are not a JSON object"),
        ({"name": "email_send_email"}, "the arguments of email_send_email are not a JSON object"),
        ({"name": "send", "arguments": "{}"}, "there is no tool 'send'"),
        ({"name": "email_delete_email", "arguments": '{"id": "1"}'}, "email_delete_email has no argument 'id'"),
        ("email_delete_email", "there is no tool None"),
    ],
)
async def test_an_action_that_cannot_be_run_is_refused_except_in_compat(action: Any, words: str) -> None:
    wanted = {**row(), "ground_truth": [action]}
    assert await refusal(wanted) == f"ground_truth: Value error, {words}"
    assert (await verdict(wanted, "Done.", compat=True)).reward == 1.0


async def test_a_row_without_actions_is_refused() -> None:
    assert await refusal({"responses_create_params": {"input": "Help."}}) == "ground_truth: Field required"


async def test_actions_under_verifier_metadata_are_found_except_in_compat() -> None:
    nested = {"responses_create_params": {"input": "Help."}, "verifier_metadata": row(MAIL)}
    assert (await verdict(nested, answer(MAIL))).reward == 1.0
    assert (await verdict(nested, answer())).reward == 0.0
    assert await refusal(nested, compat=True) == "ground_truth: Field required"


HINT = "If the row was made for other tables, name their folder: --set resources.tables=FOLDER"


async def test_a_row_whose_actions_change_nothing_is_refused_except_in_compat() -> None:
    same = load().tasks.by_id["00000005"]["board"]
    update = ("project_management_update_task", {"task_id": "00000005", "field": "board", "new_value": same})
    assert await refusal(row(update)) == f"the row's actions leave the tables as they are. {HINT}"
    look: Call = ("email_search_emails", {"query": "the"})
    assert await refusal(row(look)) == f"the row's actions leave the tables as they are. {HINT}"
    undone: Call = ("calendar_delete_event", {"event_id": "00000180"})
    assert await refusal(row(MEETING, undone)) == f"the row's actions leave the tables as they are. {HINT}"
    assert (await verdict(row(update), "Done.", compat=True)).reward == 1.0
    assert (await verdict(row(), "Done.")).reward == 1.0


async def test_an_action_that_the_tables_refuse_makes_the_row_unusable_except_in_compat() -> None:
    wrong = changed(CUSTOMER, status="Friend")
    assert (await refusal(row(MAIL, wrong))).startswith(
        f'the row\'s action {wrong[0]} has no effect on these tables: {{"output":"Status not valid.'
    )
    assert (await verdict(row(changed(MEETING, duration="soon")), "Done.", compat=True)).reward == 1.0


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("email_delete_email", {"email_id": "00009999"}, "email_id 00009999"),
        ("email_reply_email", {"email_id": "00009999", "body": "Yes."}, "email_id 00009999"),
        ("email_get_email_information_by_id", {"email_id": "00009999", "field": "body"}, "email_id 00009999"),
        ("calendar_delete_event", {"event_id": "00000180"}, "event_id 00000180"),
        ("project_management_delete_task", {"task_id": "7"}, "task_id 7"),
        ("customer_relationship_manager_delete_customer", {"customer_id": "00000120"}, "customer_id 00000120"),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "x"}, "visitor_id x"),
    ],
)
async def test_a_row_that_names_an_id_which_the_tables_do_not_hold_is_refused_except_in_compat(
    name: str, arguments: dict[str, Any], what: str
) -> None:
    wanted = row((name, arguments), MAIL)
    assert await refusal(wanted) == f"the tables hold no {what}, which the row's action {name} names. {HINT}"
    assert (await verdict(wanted, answer(MAIL), compat=True)).reward == 1.0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("email_send_email", {**MAIL[1], "recipient": "raj.patel@atlas.com"}),
        ("email_forward_email", {"email_id": "00000007", "recipient": "raj.patel@atlas.com"}),
        ("calendar_create_event", {**MEETING[1], "participant_email": "Raj.Patel@atlas.com"}),
        (
            "calendar_update_event",
            {"event_id": "00000007", "field": "participant_email", "new_value": "raj.patel@atlas.com"},
        ),
        ("customer_relationship_manager_add_customer", {**CUSTOMER[1], "assigned_to_email": "raj.patel@atlas.com"}),
    ],
)
async def test_a_person_must_be_in_the_tables_or_in_the_request_except_in_compat(
    name: str, arguments: dict[str, Any]
) -> None:
    wanted = row((name, arguments))
    words = (await refusal(wanted)).lower()
    assert words.startswith("the tables hold no raj.patel@atlas.com, ")
    assert (await verdict(wanted, answer((name, arguments)), compat=True)).reward == 1.0
    asked = {**wanted, "responses_create_params": {"input": "Write to Raj (RAJ.PATEL@atlas.com)."}}
    assert (await verdict(asked, answer((name, arguments)))).reward == 1.0


async def test_a_person_may_be_a_customer_that_the_row_itself_adds() -> None:
    new = changed(CUSTOMER, customer_email="ida@berg.example")
    mail = changed(MAIL, recipient="ida@berg.example")
    assert await reward([new, mail], [mail, new]) == 1.0


@pytest.mark.parametrize(
    ("request_text", "what"),
    [
        ("Delete the last email about 'Notes from the regatta of the lighthouse keepers'.", "'Notes from the regatta"),
        ("Delete the email \u201cNotes from the regatta\u201d, please.", "'Notes from the regatta'"),
        ("Delete zebulon's last email.", "Zebulon"),
        ("I've read all of Zebulon\u2019s new emails, so delete the last of them.", "Zebulon"),
    ],
)
async def test_a_request_that_names_mail_or_people_of_other_tables_is_refused(request_text: str, what: str) -> None:
    asked = {**row(DELETION), "responses_create_params": {"input": request_text}}
    assert (await refusal(asked)).lower().startswith(f"the tables hold no {what}".lower())
    assert (await verdict(asked, answer(DELETION), compat=True)).reward == 1.0


@pytest.mark.parametrize(
    "request_text",
    [
        "Delete email 7. It's the email that I don't need; today's mails can wait, and so can my boss's messages.",
        "Here's an email to delete: the one from 'the 3 keepers' at '9 o'clock'. That's all of last week's mail.",
        "What's in Monday's emails? Delete the one that I've called 'it'.",
    ],
)
async def test_other_words_in_a_request_are_not_taken_for_names(request_text: str) -> None:
    asked = {**row(DELETION), "responses_create_params": {"input": request_text}}
    assert (await verdict(asked, answer(DELETION))).reward == 1.0


async def test_every_public_row_is_refused_with_our_own_tables() -> None:
    for public in shared_rows(NAME):
        assert HINT in await refusal(public)


def test_a_row_that_cannot_be_judged_is_a_failure_before_the_model_is_asked() -> None:
    model = ScriptedModel(["Done."])
    result = ludus.collect(office(), model=model, input=[row(("email_delete_email", {"email_id": "00009999"}))])
    (failed,) = result.rollouts
    assert failed.error is not None
    assert (failed.error.stage, failed.error.kind) == ("open", "bad_row")
    assert (failed.reward, failed.calls) == (None, [])


def test_rescoring_a_stored_rollout_gives_the_same_reward(tmp_path: Path) -> None:
    calls = {"calls": [{"name": name, "arguments": arguments} for name, arguments in (MAIL, MEETING)]}
    for actions, earned in (((MAIL, MEETING), 1.0), ((MAIL,), 0.0)):
        output = tmp_path / str(earned)
        ludus.collect(NAME, model=ScriptedModel([calls, "Done."]), input=[row(*actions)], output=output)
        (stored,) = map(orjson.loads, (output / "rollouts.jsonl").read_bytes().splitlines())
        assert stored["reward"] == earned
        rescored = rescore(output / "rollouts.jsonl", output=tmp_path / "again.jsonl")
        assert rescored.counts == {"unchanged": 1}
        assert rescored.drift_count == 0
        (again,) = map(orjson.loads, (tmp_path / "again.jsonl").read_bytes().splitlines())
        assert again["reward"] == earned


def test_concurrent_rollouts_do_not_see_each_others_changes() -> None:
    script = [{"call": MAIL[0], "arguments": MAIL[1]}, {"call": DELETION[0], "arguments": DELETION[1]}, "Done."]
    result = ludus.collect(
        office(), model=ScriptedModel(script), input=[row(MAIL, DELETION)], repeats=50, concurrency=50
    )
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * 50


@pytest.mark.parametrize("compat", [False, True])
async def test_public_rows_earn_the_reward_with_their_own_tables(compat: bool) -> None:
    environment = office(shared_path("data", NAME))
    for public in shared_rows(NAME):
        actions = [(action["name"], json.loads(action["arguments"])) for action in public["ground_truth"]]
        for done, earned in ((actions, 1.0), (actions[:-1], 0.0), ([*actions, MAIL], 0.0)):
            graded = await judge(environment, public, answer(*done), compat=compat)
            assert isinstance(graded, Verdict)
            assert (graded.reward, graded.mask) == (earned, None)


def test_tables_are_found_in_the_folder_of_the_public_data_or_in_its_csv_folder() -> None:
    folder = shared_path("data", NAME)
    assert Tables.load(folder) == Tables.load(folder / "csv_data")
    assert len(Tables.load(folder).emails.rows) == 500


def test_unusable_tables_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no emails.csv in .*resources.tables=FOLDER"):
        ludus.collect(NAME, model=ScriptedModel(["Done."]), input=[row()], settings={"resources.tables": tmp_path})
    header = "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body\n"
    for content, words in [
        ("a,b\n", "emails.csv: the columns must be email_id"),
        ("", "not none"),
        (f"{header}1,x\n", "row 2 has 2 cells, not 6"),
        (f"{header}x,,,,,\n", "email_id must be a unique number in every row, not x"),
        (f"{header},,,,,x\n", "email_id must be a unique number in every row, not an empty cell"),
        (f"{header}1,,,,,\n1,,,,,\n", "email_id must be a unique number in every row, not 1 twice"),
    ]:
        (tmp_path / "emails.csv").write_text(content)
        with pytest.raises(UserError, match=words):
            Tables.load(tmp_path)


async def test_verdicts_and_outputs_agree_with_the_reference() -> None:
    assert await disagreements(office(shared_path("data", NAME))) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(office(shared_path("data", NAME)), compat=True) == []
