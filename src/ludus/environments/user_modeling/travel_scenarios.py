"""The scenarios of the ferry line."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import Any

from ludus.environments.user_modeling.desk import Desk, Record, money
from ludus.environments.user_modeling.scenario import Scenario, amount, by_user, call, pick
from ludus.environments.user_modeling.travel import CHANGE_FEE, VOUCHER_DAYS, voucher

_BOOKINGS = "SELECT * FROM bookings JOIN sailings USING (sailing_id)"
_CARD = "You pay with your card and approve payments in your banking app."


def cancel_flex(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A flex booking is cancelled, and all of its price is refunded."""
    booking = pick(rng, desk, f"{_BOOKINGS} WHERE fare = 'flex'")
    if booking is None:
        return None
    return _cancelled(booking, "I cannot travel and want to cancel my booking.", "money", _price(booking))


def voucher_taken(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A saver booking is cancelled for a voucher."""
    booking = _early_saver(rng, desk, today)
    if booking is None:
        return None
    goal = "I want to cancel my booking. A voucher would be fine."
    return _cancelled(booking, goal, "voucher", voucher(_price(booking)))


def voucher_refused(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A saver booking is not cancelled, because the customer declines a voucher."""
    booking = _early_saver(rng, desk, today)
    if booking is None:
        return None
    goal = ["I want to cancel my booking and get my money back. If I cannot have money, I will travel."]
    told = [amount(voucher(_price(booking)))]
    return Scenario(goal, _facts(booking), [_identify(booking)], told, refuses=["a voucher"])


def moved(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A booking is moved to another day. If that costs something, the customer pays first."""
    booking = pick(rng, desk, _BOOKINGS)
    if booking is None:
        return None
    query = "SELECT * FROM sailings WHERE origin = ? AND destination = ? AND sailing_id != ? AND seats_left >= ?"
    route = booking["origin"], booking["destination"]
    new = pick(rng, desk, query, *route, booking["sailing_id"], booking["passengers"])
    if new is None:
        return None
    per_passenger = max(new["price"] - booking["price"], 0) + CHANGE_FEE * (booking["fare"] == "saver")
    due = per_passenger * booking["passengers"]
    goal = [f"I want to travel from {route[0]} to {route[1]} on {new['day']}, not on the day that I booked."]
    asked = call("request_payment", booking_id=booking["booking_id"], amount=float(money(due)))
    paying = [asked, by_user("approve_payment")] if due else []
    change = call("change_booking", booking_id=booking["booking_id"], sailing_id=new["sailing_id"])
    belongings = {"booking": booking["booking_id"]}
    told = [amount(due)] if due else []
    actions = [_identify(booking), *paying, change]
    return Scenario(goal, {**_facts(booking), "payment": _CARD}, actions, told, belongings=belongings)


def group(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A large group: the customer is transferred to a human."""
    booking = pick(rng, desk, _BOOKINGS)
    if booking is None:
        return None
    goal = [f"I need {rng.randrange(12, 40)} more places on my booking, for a school trip."]
    return Scenario(goal, _facts(booking), [call("transfer_to_human", topic="groups")])


KINDS: tuple[Callable[[random.Random, Desk, date], Scenario | None], ...] = (
    cancel_flex,
    voucher_refused,
    moved,
    voucher_taken,
    group,
)


def _cancelled(booking: Record, goal: str, refund: str, worth: int) -> Scenario:
    cancel = call("cancel_booking", booking_id=booking["booking_id"], refund=refund)
    return Scenario([goal], _facts(booking), [_identify(booking), cancel], [amount(worth)])


def _early_saver(rng: random.Random, desk: Desk, today: date) -> Record | None:
    bookings = desk.all(f"{_BOOKINGS} WHERE fare = 'saver'")
    early = [booking for booking in bookings if (date.fromisoformat(booking["day"]) - today).days >= VOUCHER_DAYS]
    return rng.choice(early) if early else None


def _price(booking: Record) -> int:
    return int(booking["price"] * booking["passengers"])


def _facts(booking: Record) -> dict[str, str]:
    return {"booking reference": booking["booking_id"], "surname": booking["surname"]}


def _identify(booking: Record) -> dict[str, Any]:
    return call("find_booking", booking_id=booking["booking_id"], surname=booking["surname"])
