"""The scenarios of the library."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import Any

from ludus.environments.user_modeling.desk import Desk, Record
from ludus.environments.user_modeling.library import MOST_RENEWALS, WAIVED_BELOW, renewed
from ludus.environments.user_modeling.scenario import Scenario, amount, by_user, call, day, pick

_LOANS = "SELECT * FROM loans JOIN titles USING (title_id) JOIN members USING (card)"
_RESERVED = "title_id IN (SELECT title_id FROM reservations WHERE reservations.card != loans.card)"
_FINES = "SELECT * FROM fines JOIN members USING (card) JOIN loans USING (barcode) JOIN titles USING (title_id)"
_BRANCHES = ("Weir Street", "Old Town", "Riverside")


def renew(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A loan is renewed."""
    loan = pick(rng, desk, f"{_LOANS} WHERE renewals < ? AND NOT {_RESERVED}", MOST_RENEWALS)
    if loan is None:
        return None
    actions = [_identify(loan), call("renew_loan", barcode=loan["barcode"])]
    return Scenario(_renewing(loan), _facts(loan), actions, [day(renewed(loan["due_on"]))], **_in_hand(loan))


def not_renewed(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A loan cannot be renewed, because another member reserved the title or the loan was renewed twice."""
    loan = pick(rng, desk, f"{_LOANS} WHERE renewals >= ? OR {_RESERVED}", MOST_RENEWALS)
    if loan is None:
        return None
    return Scenario(_renewing(loan), _facts(loan), [_identify(loan)], [day(loan["due_on"])], **_in_hand(loan))


def reserve(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A title is reserved, to be collected at a branch that the member names."""
    member = pick(rng, desk, "SELECT * FROM members WHERE category = 'adult'")
    query = "SELECT * FROM titles WHERE title_id NOT IN (SELECT title_id FROM loans WHERE card = ?)"
    title = pick(rng, desk, query, member["card"]) if member is not None else None
    if member is None or title is None:
        return None
    branch = rng.choice(_BRANCHES)
    facts = {**_facts(member), "branch for collecting": branch}
    actions = [_identify(member), call("reserve_title", title_id=title["title_id"], branch=branch)]
    return Scenario([f"I would like to reserve {title['title']}."], facts, actions)


def young_reader(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A junior member may not reserve a title for adults, but may renew a loan."""
    loan = pick(rng, desk, f"{_LOANS} WHERE category = 'junior' AND renewals < ? AND NOT {_RESERVED}", MOST_RENEWALS)
    title = pick(rng, desk, "SELECT title FROM titles WHERE readers = 'adult'")
    if loan is None or title is None:
        return None
    actions = [_identify(loan), call("renew_loan", barcode=loan["barcode"])]
    goal = [f"Please reserve {title['title']} for me, at Riverside.", *_renewing(loan)]
    return Scenario(goal, _facts(loan), actions, [day(renewed(loan["due_on"]))], **_in_hand(loan))


def small_fine(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A small fine is waived after the member has put the book into the return box."""
    fine = pick(rng, desk, f"{_FINES} WHERE amount < ?", WAIVED_BELOW)
    if fine is None:
        return None
    actions = [_identify(fine), by_user("return_book"), call("waive_fine", fine_id=fine["fine_id"])]
    return Scenario(_waiving(fine), _facts(fine), actions, [amount(fine["amount"])], **_in_hand(fine))


def large_fine(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A large fine is not waived."""
    fine = pick(rng, desk, f"{_FINES} WHERE amount >= ?", WAIVED_BELOW)
    if fine is None:
        return None
    return Scenario(_waiving(fine), _facts(fine), [_identify(fine)], [amount(fine["amount"])])


def lost(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A lost book: the member is transferred to a human."""
    loan = pick(rng, desk, _LOANS)
    if loan is None:
        return None
    return Scenario([f"I have lost {loan['title']}."], _facts(loan), [call("transfer_to_human", topic="lost")])


KINDS: tuple[Callable[[random.Random, Desk, date], Scenario | None], ...] = (
    renew,
    not_renewed,
    small_fine,
    reserve,
    young_reader,
    large_fine,
    lost,
)


def _renewing(loan: Record) -> list[str]:
    return [f"I want to keep {loan['title']} for longer."]


def _waiving(fine: Record) -> list[str]:
    return [f"There is a fine for {fine['title']}. Can you waive it?"]


def _in_hand(loan: Record) -> dict[str, Any]:
    return {"belongings": {"barcode": loan["barcode"]}, "unknown": "The barcode. It stands on the back of the book."}


def _facts(member: Record) -> dict[str, str]:
    return {"card number": member["card"], "year of birth": str(member["birth_year"])}


def _identify(member: Record) -> dict[str, Any]:
    return call("find_member", card_number=member["card"], birth_year=member["birth_year"])
