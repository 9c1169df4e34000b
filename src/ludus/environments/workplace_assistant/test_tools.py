"""The tools of the office: what they answer, what they refuse, and that sessions are isolated from each other."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.workplace_assistant.grading import differences
from ludus.environments.workplace_assistant.resources import Tools, WorkplaceAssistant
from ludus.environments.workplace_assistant.rules import parse
from ludus.environments.workplace_assistant.tables import Office, Tables
from ludus.runtime.processes import shared_pool

TASK = WorkplaceAssistant.Task.model_validate({"responses_create_params": {"input": "Help."}, "ground_truth": []})
PERSON = "bashir.noor@harbourlight.example"
EVENT = {"event_name": "Talk", "participant_email": PERSON, "event_start": "2023-12-06 09:30:00", "duration": "60"}
CARD = {"task_name": "Sweep", "assigned_to_email": PERSON, "list_name": "Backlog", "board": "Design"}
CUSTOMER = {"customer_name": "Ida Berg", "assigned_to_email": PERSON, "status": "Lead"}
SEARCH = "customer_relationship_manager_search_customers"
ADD = "customer_relationship_manager_add_customer"
UPDATE = "customer_relationship_manager_update_customer"

load = functools.cache(Tables.load)


async def session(compat: bool = False) -> WorkplaceAssistant:
    desk = WorkplaceAssistant(WorkplaceAssistant.Config(compat=compat), load())
    await desk.open(TASK)
    return desk


async def ask(desk: WorkplaceAssistant, name: str, /, **arguments: Any) -> Any:
    """The answer of a tool, without the wrapper `{"output": ...}`."""
    answer = json.loads(await desk.call(name, json.dumps(arguments)))
    return answer.get("output", answer)


async def both(name: str, /, **arguments: Any) -> tuple[Any, Any]:
    """The answers of two fresh sessions: by default, and with `compat`."""
    async with shared_pool():
        return await ask(await session(), name, **arguments), await ask(await session(True), name, **arguments)


def wrong(name: str, form: str = "YYYY-MM-DD") -> str:
    return f"Invalid {name} format. Expected {form}."


def raised(name: str, words: str) -> str:
    return f"Error executing tool '{name}': {words}"


def test_there_are_27_tools_and_their_schemas_name_the_required_arguments() -> None:
    schemas = {schema["name"]: schema["parameters"] for schema in WorkplaceAssistant(shared=load()).tools()}
    assert len(schemas) == 27
    assert schemas["email_reply_email"]["required"] == ["email_id", "body"]
    assert schemas[ADD]["required"] == ["customer_name", "assigned_to_email", "status"]
    for parameters in schemas.values():
        assert parameters["additionalProperties"] is False
        for name, parameter in parameters["properties"].items():
            assert parameter["type"] == ("integer" if name in ("page", "page_size") else "string")
            assert parameter["description"]


async def test_mail_can_be_found_read_sent_and_deleted() -> None:
    desk = await session()
    email = load().emails.rows[-1]
    output = await ask(desk, "email_search_emails", query=f"{email['subject'].upper()} {email['sender/recipient']}")
    assert output["emails"][0] == email
    assert output["pagination"]["page_size"] == 5
    assert await ask(desk, "email_send_email", recipient="X@Y.Z", subject="S", body="B") == "Email sent successfully."
    newest = (await ask(desk, "email_search_emails", date_min="2023-11-30", page_size=1))["emails"]
    assert [(row["email_id"], row["sender/recipient"], row["inbox/outbox"]) for row in newest] == [
        ("240", "x@y.z", "outbox")
    ]
    number = email["email_id"]
    assert await ask(desk, "email_forward_email", email_id=number, recipient=PERSON) == "Email forwarded successfully."
    read = await ask(desk, "email_get_email_information_by_id", email_id="241", field="subject")
    assert read == {"subject": f"FW: {email['subject']}"}
    assert await ask(desk, "email_delete_email", email_id=number) == "Email deleted successfully."
    assert await ask(desk, "email_delete_email", email_id=number) == "Email not found."
    assert await ask(desk, "email_search_emails", query="zebra crossing") == "No emails found."


async def test_events_can_be_created_changed_found_and_deleted() -> None:
    desk = await session()
    assert await ask(desk, "calendar_create_event", **EVENT) == "00000180"
    update = {"event_id": "00000180", "field": "event_start", "new_value": "2024-01-02 10:00:00"}
    assert await ask(desk, "calendar_update_event", **update) == "Event updated successfully."
    output = await ask(desk, "calendar_search_events", query="talk", time_min="2024-01-01 00:00:00")
    assert output["events"] == [{"event_id": "00000180", **EVENT, "event_start": "2024-01-02 10:00:00"}]
    assert await ask(desk, "calendar_delete_event", event_id="00000180") == "Event deleted successfully."
    assert await ask(desk, "calendar_search_events", time_min="2024-01-01 00:00:00") == "No events found."
    starts = [event["event_start"] for event in (await ask(desk, "calendar_search_events", page_size=200))["events"]]
    assert starts == sorted(starts, reverse=True)


async def test_visits_are_counted_by_day() -> None:
    desk = await session()
    days = await ask(desk, "analytics_total_visits_count")
    assert sum(days.values()) == len(load().visits)
    assert list(days) == sorted(days)
    sources = [
        await ask(desk, "analytics_traffic_source_count", traffic_source=source)
        for source in ("direct", "referral", "search engine", "social media")
    ]
    assert {day: sum(source[day] for source in sources) for day in days} == days
    some = await ask(desk, "analytics_engaged_users_count", time_min="2023-10-01", time_max="2023-10-07")
    assert all("2023-10-01" <= day <= "2023-10-07" and count <= days[day] for day, count in some.items())
    visitor = load().visits[0]["visitor_id"]
    visits = await ask(desk, "analytics_get_visitor_information_by_id", visitor_id=visitor)
    assert visits == [row for row in load().visits if row["visitor_id"] == visitor]


async def test_tasks_can_be_created_only_for_people_who_have_tasks() -> None:
    desk = await session()
    due = {"due_date": "2023-12-08"}
    assert await ask(desk, "project_management_create_task", **CARD, **due) == "00000180"
    stranger = {**CARD, **due, "assigned_to_email": "x@y.z"}
    refused = await ask(desk, "project_management_create_task", **stranger)
    assert refused == "Nobody with this address has a task on the boards."
    tasks = await ask(desk, "project_management_search_tasks", task_name="SWEEP", assigned_to_email=PERSON)
    assert [task["task_id"] for task in tasks] == ["00000180"]
    assert await ask(desk, "project_management_delete_task", task_id="00000180") == "Task deleted successfully."
    assert await ask(desk, "project_management_search_tasks", task_name="sweep") == []


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("company_directory_find_email_address", {"name": None}, "Name not provided."),
        ("email_get_email_information_by_id", {"field": "body"}, "Email ID not provided."),
        ("email_reply_email", {}, "Email ID or body not provided."),
        ("email_forward_email", {"email_id": "00000001", "recipient": "nobody"}, "Invalid recipient email address."),
        ("calendar_create_event", {**EVENT, "duration": "0"}, "Duration must be a positive number of minutes."),
        ("calendar_create_event", {**EVENT, "event_name": ""}, "Event name not provided."),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "0"}, "Visitor not found."),
        ("project_management_create_task", CARD, "Missing task details."),
        ("project_management_search_tasks", {}, "No search parameters provided."),
        ("project_management_get_task_information_by_id", {"task_id": "00000001", "field": "x"}, "Field not found."),
        (UPDATE, {"customer_id": "00000001", "field": "status"}, "Customer ID, field, or new value not provided."),
        (SEARCH, {"customer_name": "zzz"}, "No customers found."),
        (SEARCH, {}, "Nothing to search for. Give a name, an address, a product, a status or a date."),
    ],
)
async def test_a_missing_argument_or_row_is_answered_with_a_sentence(name: str, arguments: Any, words: str) -> None:
    assert await both(name, **arguments) == (words, words)


async def test_a_page_out_of_range_is_the_first_or_the_last_page() -> None:
    for page, shown in ((-3, 1), (0, 1), (2, 2), (10**12, 48)):
        output = await ask(await session(), "email_search_emails", query="robin", page=page)
        assert output["pagination"] == {"total_emails": 240, "page": shown, "page_size": 5, "total_pages": 48}
    output = await ask(await session(), "email_search_emails", query="robin", page_size=0)
    assert len(output["emails"]) == output["pagination"]["page_size"] == 1


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ('["00000001"]', "model_attributes_type"),
        ('"00000001"', "model_attributes_type"),
        ('{"id": "00000001"}', "extra_forbidden"),
    ],
)
async def test_a_malformed_call_gets_a_validation_error_and_changes_nothing(arguments: str, kind: str) -> None:
    desk = await session()
    assert kind in {
        problem["type"] for problem in json.loads(await desk.call("email_delete_email", arguments))["detail"]
    }
    assert desk.office.edits == 0


async def test_arguments_that_are_not_json_and_unknown_tools_get_an_error() -> None:
    for compat in (False, True):
        desk = await session(compat)
        assert "Invalid tool call arguments" in json.loads(await desk.call("email_delete_email", "{"))["error"]
    assert await both("__init__") == ({"detail": "Not Found"}, raised("__init__", "'__init__'"))


async def test_an_id_given_as_a_number_matches_no_row() -> None:
    for name, argument, words in (
        ("email_delete_email", "email_id", "Email not found."),
        ("project_management_delete_task", "task_id", "Task not found."),
        ("analytics_get_visitor_information_by_id", "visitor_id", "Visitor not found."),
    ):
        assert await both(name, **{argument: int(load().visits[0]["visitor_id"])}) == (words, words)


ODD: list[Any] = [["Won"], {"a": "b@c.de"}, True, ["raj.patel@atlas.com"]]


@pytest.mark.parametrize("value", ODD)
async def test_a_list_or_an_object_gets_the_refusal_of_a_wrong_text(value: Any) -> None:
    card = {**CARD, "due_date": "2023-12-20"}
    for name, arguments, key, words in (
        ("email_delete_email", {}, "email_id", "Email not found."),
        ("email_get_email_information_by_id", {"field": "body"}, "email_id", "Email not found."),
        ("email_send_email", {"subject": "S", "body": "B"}, "recipient", "Invalid recipient email address."),
        ("project_management_create_task", card, "list_name", "List not valid."),
        ("project_management_create_task", card, "board", "Board not valid."),
        (UPDATE, {"customer_id": "00000001", "field": "status"}, "new_value", "Status not valid."),
        ("calendar_create_event", EVENT, "duration", "Invalid duration format."),
        ("calendar_update_event", {"event_id": "00000001", "new_value": "x"}, "field", "Invalid field."),
    ):
        desk = await session()
        answer = json.loads(await desk.call(name, json.dumps({**arguments, key: value})))
        assert str(answer.get("output")).startswith(words)
        assert desk.office.edits == 0


async def test_an_empty_list_counts_as_an_empty_text() -> None:
    desk = await session()
    values: list[Any] = [[], {}, False]
    for empty in values:
        words = "Recipient, subject, or body not provided."
        assert await ask(desk, "email_send_email", recipient=empty, subject="S", body="B") == words
        assert await ask(desk, "email_send_email", recipient=PERSON, subject=empty, body="B") == words


@pytest.mark.parametrize("value", ODD)
async def test_a_list_or_an_object_is_not_stored_as_text(value: Any) -> None:
    for name, arguments, key in (
        ("email_send_email", {"recipient": PERSON, "body": "B"}, "subject"),
        ("calendar_create_event", EVENT, "event_name"),
        (ADD, CUSTOMER, "notes"),
        (UPDATE, {"customer_id": "00000001", "field": "notes"}, "new_value"),
        ("calendar_search_events", {}, "query"),
    ):
        desk = await session()
        answer = json.loads(await desk.call(name, json.dumps({**arguments, key: value})))
        assert answer["detail"][0]["loc"] == ["body", key]
        assert desk.office.edits == 0


async def test_a_number_is_accepted_as_text() -> None:
    desk = await session()
    assert await ask(desk, "calendar_create_event", **{**EVENT, "duration": 30.0}) == "00000180"
    read = await ask(desk, "calendar_get_event_information_by_id", event_id="00000180", field="duration")
    assert read == {"duration": "30"}


async def test_an_unknown_argument_is_named_except_in_compat() -> None:
    name, mail = "email_send_email", {"recipient": PERSON, "subject": "S", "body": "B"}
    ours, theirs = await both(name, **mail, cc="x@y.z")
    assert ours["detail"][0] == {
        "type": "extra_forbidden",
        "loc": ["body", "cc"],
        "msg": "Extra inputs are not permitted",
        "input": "x@y.z",
    }
    assert theirs == raised(name, "EmailTool.send_email() got an unexpected keyword argument 'cc'")


async def test_no_exception_is_shown_to_the_model_except_in_compat() -> None:
    name, values = "email_send_email", {"recipient": 5, "subject": "S", "body": "B"}
    words = raised(name, "argument of type 'int' is not iterable")
    assert await both(name, **values) == ("Invalid recipient email address.", words)
    ours, theirs = await both(ADD, **{**CUSTOMER, "assigned_to_email": 5})
    assert ours == wrong("assigned_to_email", "an email address")
    assert theirs == raised(ADD, "'int' object has no attribute 'lower'")
    name = "analytics_total_visits_count"
    ours, theirs = await both(name, time_min=20231130)
    assert set(ours) <= {"2023-11-30"}
    assert theirs == raised(name, "'>=' not supported between instances of 'str' and 'int'")
    name = "email_search_emails"
    ours, theirs = await both(name, date_min="soon")
    assert ours == f"Error searching emails: {wrong('date_min')}"
    assert theirs == "Error searching emails: Unknown datetime string format, unable to parse: soon"


async def test_a_search_text_is_not_a_pattern_except_in_compat() -> None:
    directory = "company_directory_find_email_address"
    ours, theirs = await both(directory, name="alma|keira")
    assert (ours, len(theirs)) == ([], 2)
    assert await both(directory, name="(") == (
        [],
        raised(directory, "missing ), unterminated subpattern at position 0"),
    )
    ours, theirs = await both("calendar_search_events", query="plan.*g", page_size=1)
    assert ours == "No events found."
    assert theirs["pagination"]["total_events"] > 1
    ours, theirs = await both("project_management_search_tasks", task_name="^fix")
    assert ours == []
    assert {task["task_name"].split()[0] for task in theirs} == {"Fix"}
    assert (await both(directory, name="alma.reyes")) == (["alma.reyes@harbourlight.example"],) * 2


async def test_a_pattern_that_runs_too_long_is_stopped_in_compat() -> None:
    _, theirs = await both("calendar_search_events", query=r"(\w*\w*)*!")
    assert theirs == "the search took more than 0.5 s"


async def test_a_word_is_not_a_date_except_in_compat() -> None:
    ours, theirs = await both("analytics_engaged_users_count", time_min="November")
    assert (ours, theirs) == (wrong("time_min"), {})
    ours, theirs = await both(SEARCH, last_contact_date_min="zzz")
    assert (ours, theirs) == (wrong("last_contact_date_min"), "No customers found.")
    ours, theirs = await both("project_management_create_task", **CARD, due_date="someday")
    assert (ours, theirs) == (wrong("due_date"), "00000180")
    ours, theirs = await both(UPDATE, customer_id="00000001", field="follow_up_by", new_value="soon")
    assert (ours, theirs) == (wrong("follow_up_by"), "Customer updated successfully.")
    ours, theirs = await both(ADD, **CUSTOMER, last_contact_date="soon")
    assert (ours, theirs) == (wrong("last_contact_date"), "00000120")


async def test_the_path_of_a_plot_contains_only_valid_days_except_in_compat() -> None:
    name, values = "analytics_create_plot", {"time_max": "2023-10-31", "value_to_plot": "total_visits"}
    ours, theirs = await both(name, time_min="../../x", **values, plot_type="bar")
    assert (ours, theirs) == (wrong("time_min"), "plots/../../x_2023-10-31_total_visits_bar.png")
    assert (
        await both(name, time_min="2023-10-01", **values, plot_type="bar")
        == ("plots/2023-10-01_2023-10-31_total_visits_bar.png",) * 2
    )


async def test_a_search_bound_is_a_date_without_a_time_zone_except_in_compat() -> None:
    name = "calendar_search_events"
    ours, theirs = await both(name, time_min="2023-12-20 00:00:00+00:00")
    assert ours == wrong("time_min", "YYYY-MM-DD HH:MM:SS")
    assert theirs == raised(name, "Cannot compare tz-naive and tz-aware timestamps")
    ours, theirs = await both(name, time_min=20231201)
    assert ours["pagination"]["total_events"] < theirs["pagination"]["total_events"] == 180
    ours, theirs = await both(name, time_min="December 20, 2023")
    assert ours == wrong("time_min", "YYYY-MM-DD HH:MM:SS")
    assert theirs == await ask(await session(), name, time_min="2023-12-20")


async def test_the_last_day_of_a_search_for_customers_is_included_except_in_compat() -> None:
    ours, theirs = await both(SEARCH, last_contact_date_max="2023-11-20", page_size=200)
    days = {customer["last_contact_date"][:10] for customer in ours["customers"]}
    assert max(days) == "2023-11-20"
    assert {customer["last_contact_date"][:10] for customer in theirs["customers"]} == days - {"2023-11-20"}
    ours, _ = await both(SEARCH, last_contact_date_max="2023-11-20 12:00:00", page_size=200)
    assert {customer["last_contact_date"][:10] for customer in ours["customers"]} == days - {"2023-11-20"}


async def test_the_ids_of_new_emails_do_not_collide_except_in_compat() -> None:
    for compat, last in ((False, "1001"), (True, "1000")):
        desk = await session(compat)
        desk.office.emails.add({**load().emails.rows[0], "email_id": "999"})
        for body in ("first", "second"):
            await ask(desk, "email_send_email", recipient=PERSON, subject="S", body=body)
        ids = [row["email_id"] for row in desk.office.emails.rows()][-2:]
        assert ids == ["1000", last]


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("project_management_update_task", "task_id", "Task updated successfully."),
        (UPDATE, "customer_id", "Customer updated successfully."),
    ],
)
async def test_an_id_cannot_be_overwritten_except_in_compat(name: str, key: str, words: str) -> None:
    ours, theirs = await both(name, **{key: "00000001"}, field=key, new_value="00000002")
    assert ours.startswith("Field not valid.")
    assert theirs == words


async def test_a_part_of_several_statuses_is_refused_except_in_compat() -> None:
    ours, theirs = await both(SEARCH, status="o", page_size=200)
    assert ours == "Status not valid. Please choose from: 'Qualified', 'Won', 'Lost', 'Lead', 'Proposal'"
    assert {customer["status"] for customer in theirs["customers"]} == {"Won", "Lost", "Proposal"}
    ours, theirs = await both(SEARCH, status="lea", page_size=200)
    assert ours == theirs
    assert {customer["status"] for customer in ours["customers"]} == {"Lead"}


@pytest.mark.parametrize("change", [{"status": "lead"}, {"product_interest": "Boats"}, {"assigned_to_email": "ghost"}])
async def test_a_new_customer_is_checked_except_in_compat(change: dict[str, str]) -> None:
    ours, theirs = await both(ADD, **{**CUSTOMER, **change})
    assert "valid" in ours.lower()
    assert theirs == "00000120"


async def test_a_participant_needs_an_address_except_in_compat() -> None:
    form = wrong("participant_email", "an email address")
    assert await both("calendar_create_event", **{**EVENT, "participant_email": "nobody"}) == (form, "00000180")
    change = {"event_id": "00000001", "field": "participant_email", "new_value": "nobody"}
    assert await both("calendar_update_event", **change) == (form, "Event updated successfully.")


async def test_durations_and_ids_are_plain_digits_except_in_compat() -> None:
    form = "Invalid duration format. Expected a number of minutes."
    for duration in (" 30 ", "3_0", "+30", "\u0663\u0660"):
        assert await both("calendar_create_event", **{**EVENT, "duration": duration}) == (form, "00000180")
    assert await both("calendar_create_event", **{**EVENT, "duration": "half an hour"}) == (form, form)
    ours, theirs = await both("calendar_delete_event", event_id="\u0660" * 7 + "\u0661")
    assert (ours, theirs) == (wrong("event_id", "8 digits"), "Event not found.")
    assert await both("calendar_delete_event", event_id="1") == (wrong("event_id", "8 digits"),) * 2


async def test_averaging_all_visits_does_not_change_them_except_in_compat() -> None:
    visit = load().visits[0]
    for compat, value in ((False, visit["session_duration_seconds"]), (True, float(visit["session_duration_seconds"]))):
        desk = await session(compat)
        assert await ask(desk, "analytics_get_average_session_duration")
        visits = await ask(desk, "analytics_get_visitor_information_by_id", visitor_id=visit["visitor_id"])
        assert visits[0]["session_duration_seconds"] == value


NAMES = sorted(Tools.toolbox)
VALUES = st.one_of(
    st.sampled_from(["", "00000001", "00000180", "status", "duration", "2023-12-01", "Won", "Design", PERSON, "a.b@c"]),
    st.text(max_size=12),
    st.integers(-5, 500),
    st.none(),
    st.booleans(),
    st.lists(st.text(max_size=2), max_size=2),
)


@st.composite
def calls(draw: Any) -> tuple[str, str]:
    name = draw(st.sampled_from(NAMES))
    known = sorted(Tools.toolbox[name].schema()["parameters"]["properties"])
    arguments = draw(st.dictionaries(st.sampled_from(known), VALUES, max_size=len(known)))
    return name, json.dumps(arguments)


async def played(desk: WorkplaceAssistant, script: list[tuple[str, str]]) -> list[str]:
    return [await desk.call(*call) for call in script]


@settings(max_examples=20, deadline=None)
@given(st.lists(calls(), max_size=12), st.lists(calls(), max_size=4))
def test_sessions_are_isolated_and_deterministic_whatever_is_called(before: Any, after: Any) -> None:
    async def check() -> None:
        for compat in (False, True):
            async with shared_pool():
                first, second = await session(compat), await session(compat)
                outputs = await played(first, before)
                assert all(len(json.loads(output)) == 1 for output in outputs)
                assert not any("error" in json.loads(output) for output in outputs)
                assert await played(second, before) == outputs
                twin = await session(compat)
                twin.office = first.office.copy()
                assert await played(twin, after) == await played(second, after)
                fresh = await session(compat)
                assert fresh.office.edits == 0
                assert await played(fresh, before) == outputs

    asyncio.run(check())


@settings(max_examples=20, deadline=None)
@given(st.lists(calls(), max_size=12))
def test_changes_to_a_copy_of_an_office_do_not_affect_the_original(script: Any) -> None:
    async def check() -> None:
        desk, twin = await session(), await session()
        await played(desk, script[: len(script) // 2])
        original = desk.office
        twin.office = original.copy()
        assert differences(original, twin.office) == []
        await played(twin, script[len(script) // 2 :])
        desk.office = Office(load())
        await played(desk, script[: len(script) // 2])
        assert differences(original, desk.office) == []

    asyncio.run(check())


@given(st.text(max_size=24) | st.from_regex(r"[0-9]{4}[-/][0-9]{1,2}[-/ T:0-9]*", fullmatch=True))
def test_parsing_any_text_gives_a_moment_or_none(text: str) -> None:
    moment = parse(text)
    assert moment is None or parse(f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0")) == moment
