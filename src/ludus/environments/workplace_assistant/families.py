"""The kinds of tasks. Each draws rows from the tables and returns a request and the actions that fulfil it.

An action names its rows by id; the request describes them so that no other rows fit. If a draw finds no such rows, it
has no actions and is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from ludus.environments.workplace_assistant import words
from ludus.environments.workplace_assistant.drawing import (
    MOST_ACTIONS,
    TODAY,
    Action,
    Draw,
    book_event,
    clock,
    few,
    first_name,
    last_like,
    spoken_day,
    start_of,
    update_customer,
    update_event,
    update_task,
    values_of,
)
from ludus.environments.workplace_assistant.projects import BOARDS, LISTS
from ludus.environments.workplace_assistant.rules import PRODUCTS, STATUSES, parse
from ludus.environments.workplace_assistant.visits import PLOTS

Question = tuple[str, list[Action]]

PLOTTED = {
    "total_visits": "the number of visits",
    "session_duration_seconds": "the session duration",
    "user_engaged": "the engaged users",
    "visits_direct": "the direct visits",
    "visits_referral": "the visits by referral",
    "visits_search_engine": "the visits from search engines",
    "visits_social_media": "the visits from social media",
}


@dataclass(frozen=True)
class Family:
    """One kind of task."""

    category: str
    ask: Callable[[Draw], Question]


FAMILIES: list[Family] = []


def family(category: str) -> Callable[[Callable[[Draw], Question]], Callable[[Draw], Question]]:
    """Add a kind of task."""

    def add(ask: Callable[[Draw], Question]) -> Callable[[Draw], Question]:
        FAMILIES.append(Family(category, ask))
        return ask

    return add


@family("email")
def reply(draw: Draw) -> Question:
    email, body = last_like(draw), draw.rng.choice(words.REPLIES)
    question = f"Reply to {first_name(email['sender/recipient'])}'s last email about '{email['subject']}' with '{body}'"
    return question, [("email_reply_email", {"email_id": email["email_id"], "body": body})]


@family("calendar")
def book(draw: Draw) -> Question:
    who, day, half = draw.person(), draw.coming_day(), draw.rng.randrange(18, 33)
    name, minutes = draw.rng.choice(words.NEW_MEETINGS), draw.rng.choice((30, 60, 90))
    question = (
        f"Book a meeting of {minutes} minutes called '{name}' with {first_name(who)} on {spoken_day(day)} at"
        f" {clock(half)}."
    )
    return question, [book_event(name, who, f"{day} {clock(half)}:00", minutes)]


@family("analytics")
def plot(draw: Draw) -> Question:
    first, last = sorted(draw.rng.sample(range(91), 2))
    low, high = (date(2023, 9, 1) + timedelta(days=number) for number in (first, last))
    value, kind = draw.rng.choice(sorted(PLOTTED)), draw.rng.choice(PLOTS)
    question = f"Make a {kind} plot of {PLOTTED[value]} from {spoken_day(low)} to {spoken_day(high)}."
    arguments = {"time_min": str(low), "time_max": str(high), "value_to_plot": value, "plot_type": kind}
    return question, [("analytics_create_plot", arguments)]


@family("project_management")
def new_task(draw: Draw) -> Question:
    who = draw.rng.choice(values_of(draw.tables.tasks.rows, "assigned_to_email"))
    name, board, day = draw.rng.choice(words.NEW_TASKS), draw.rng.choice(BOARDS), draw.coming_day()
    question = (
        f"Put a task '{name}' for {first_name(who)} into the Backlog of the {board} board, due on {spoken_day(day)}."
    )
    arguments = {
        "task_name": name,
        "assigned_to_email": who,
        "list_name": "Backlog",
        "due_date": str(day),
        "board": board,
    }
    return question, [("project_management_create_task", arguments)]


@family("customer_relationship_manager")
def hand_over(draw: Draw) -> Question:
    rows = draw.tables.customers.rows
    old, new = draw.two_of(set(values_of(rows, "assigned_to_email")))
    status, product = draw.rng.choice(STATUSES), draw.rng.choice(PRODUCTS)
    wanted = {"assigned_to_email": old, "status": status, "product_interest": product}
    question = (
        f"{first_name(new)} takes over all of {first_name(old)}'s customers with the status {status} who are interested"
        f" in {product.lower()}. Please change that in the customer relationship manager."
    )
    return question, [update_customer(row, "assigned_to_email", new) for row in few(rows, **wanted)]


@family("email")
def forward(draw: Draw) -> Question:
    email, to = last_like(draw), draw.person()
    sender = first_name(email["sender/recipient"])
    question = f"Forward the last email from {sender} about '{email['subject']}' to {first_name(to)}."
    return question, [("email_forward_email", {"email_id": email["email_id"], "recipient": to})]


@family("calendar")
def rename(draw: Draw) -> Question:
    day, name = draw.coming_day(), draw.rng.choice(words.NEW_MEETINGS)
    events = [row for row in draw.tables.events.rows if row["event_start"].startswith(str(day))]
    question = f"Change the name of the last event on {spoken_day(day)} to '{name}'."
    return question, [update_event(max(events, key=start_of), "event_name", name)] if events else []


@family("project_management")
def move_on(draw: Draw) -> Question:
    rows = draw.tables.tasks.rows
    who, board = draw.rng.choice(values_of(rows, "assigned_to_email")), draw.rng.choice(BOARDS)
    here, there = draw.rng.choice(list(pairwise(LISTS)))
    question = f"Move all of {first_name(who)}'s tasks on the {board} board that are in '{here}' to '{there}'."
    wanted = few(rows, assigned_to_email=who, board=board, list_name=here)
    return question, [update_task(row, "list_name", there) for row in wanted]


@family("customer_relationship_manager")
def give_up(draw: Draw) -> Question:
    rows = draw.tables.customers.rows
    who, day = draw.rng.choice(values_of(rows, "assigned_to_email")), TODAY - timedelta(days=draw.rng.randrange(10, 50))
    wanted = [row for row in rows if row["assigned_to_email"] == who and row["status"] == "Proposal"]
    late = few([row for row in wanted if row["last_contact_date"][:10] < str(day)])
    question = (
        f"Set every customer of {first_name(who)} with the status Proposal whose last contact was before"
        f" {spoken_day(day)} to Lost."
    )
    return question, [update_customer(row, "status", "Lost") for row in late]


@family("multi_domain")
def answer_and_meet(draw: Draw) -> Question:
    email, body = last_like(draw), draw.rng.choice(words.REPLIES)
    sender, day, half = email["sender/recipient"], draw.coming_day(), draw.rng.randrange(18, 34)
    name = draw.rng.choice(words.NEW_MEETINGS)
    question = (
        f"Reply to {first_name(sender)}'s last email about '{email['subject']}' with '{body}', and book a meeting of"
        f" 30 minutes called '{name}' with {first_name(sender)} on {spoken_day(day)} at {clock(half)}."
    )
    reply_action = ("email_reply_email", {"email_id": email["email_id"], "body": body})
    return question, [reply_action, book_event(name, sender, f"{day} {clock(half)}:00", 30)]


@family("email")
def send(draw: Draw) -> Question:
    to, subject, body = draw.person(), draw.rng.choice(words.NOTES), draw.rng.choice(words.NOTE_BODIES)
    question = f"Send an email to {first_name(to)} with the subject '{subject}' and the text '{body}'"
    return question, [("email_send_email", {"recipient": to, "subject": subject, "body": body})]


@family("calendar")
def cancel(draw: Draw) -> Question:
    who = draw.person()
    rows = [
        row for row in draw.tables.events.rows if row["participant_email"] == who and row["event_start"] > "2023-12"
    ]
    question = f"Cancel my first meeting with {first_name(who)} in December."
    return question, [("calendar_delete_event", {"event_id": min(rows, key=start_of)["event_id"]})] if rows else []


@family("project_management")
def step_in(draw: Draw) -> Question:
    rows = draw.tables.tasks.rows
    old, new = draw.two_of(set(values_of(rows, "assigned_to_email")))
    name = draw.rng.choice(LISTS[:3])
    late = [row for row in rows if row["due_date"] < str(TODAY)]
    question = f"Give all of {first_name(old)}'s overdue tasks that are in '{name}' to {first_name(new)}."
    wanted = few(late, assigned_to_email=old, list_name=name)
    return question, [update_task(row, "assigned_to_email", new) for row in wanted]


@family("customer_relationship_manager")
def add_customer(draw: Draw) -> Question:
    who = draw.rng.choice(values_of(draw.tables.customers.rows, "assigned_to_email"))
    name = f"{draw.rng.choice(words.CUSTOMER_FIRST)} {draw.rng.choice(words.CUSTOMER_LAST)}"
    email, product = f"{name.lower().replace(' ', '.')}@new.example", draw.rng.choice(PRODUCTS)
    question = (
        f"Add {name} ({email}), who is interested in {product.lower()}, as a new lead of {first_name(who)}'s to the"
        " customer relationship manager."
    )
    arguments = {"customer_name": name, "assigned_to_email": who, "status": "Lead"}
    arguments |= {"customer_email": email, "product_interest": product}
    known = any(row["customer_name"] == name for row in draw.tables.customers.rows)
    return question, [] if known else [("customer_relationship_manager_add_customer", arguments)]


@family("multi_domain")
def remind(draw: Draw) -> Question:
    board, name = draw.rng.choice(BOARDS), draw.rng.choice(LISTS[:3])
    late = [row for row in draw.tables.tasks.rows if row["due_date"] < str(TODAY)]
    people = values_of([row for row in late if row["board"] == board and row["list_name"] == name], "assigned_to_email")
    body = draw.rng.choice(words.NOTE_BODIES)
    question = (
        f"Everybody who has an overdue task in '{name}' on the {board} board shall get an email from me, one each, with"
        f" the subject 'Overdue task' and the text '{body}'"
    )
    mails: list[Action] = [
        ("email_send_email", {"recipient": to, "subject": "Overdue task", "body": body}) for to in people
    ]
    return question, mails if len(mails) <= MOST_ACTIONS else []


@family("email")
def delete_mail(draw: Draw) -> Question:
    email = last_like(draw)
    question = f"Delete the last email from {first_name(email['sender/recipient'])} about '{email['subject']}'."
    return question, [("email_delete_email", {"email_id": email["email_id"]})]


@family("calendar")
def postpone(draw: Draw) -> Question:
    event, day, half = draw.rng.choice(draw.tables.events.rows), draw.coming_day(), draw.rng.randrange(18, 33)
    at = parse(event["event_start"])
    who = event["participant_email"]
    if at is None or at.date() <= TODAY or half * 30 + int(event["duration"]) > 18 * 60:
        return "", []
    same = [row for row in draw.tables.events.rows if row["participant_email"] == who]
    if sum(row["event_start"].startswith(f"{at:%Y-%m-%d}") for row in same) > 1:
        return "", []
    question = f"Move my meeting with {first_name(who)} on {spoken_day(at.date())} to {spoken_day(day)}, {clock(half)}."
    start = f"{day} {clock(half)}:00"
    return question, [update_event(event, "event_start", start)] if start != event["event_start"] else []


@family("customer_relationship_manager")
def forget(draw: Draw) -> Question:
    rows = draw.tables.customers.rows
    who, product = draw.rng.choice(values_of(rows, "assigned_to_email")), draw.rng.choice(PRODUCTS)
    question = (
        f"Delete all of {first_name(who)}'s lost customers who were interested in {product.lower()} from the customer"
        " relationship manager."
    )
    wanted = few(rows, assigned_to_email=who, status="Lost", product_interest=product)
    return question, [
        ("customer_relationship_manager_delete_customer", {"customer_id": row["customer_id"]}) for row in wanted
    ]
