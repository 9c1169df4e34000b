"""The scenarios of the shop."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from ludus.environments.user_modeling.desk import Desk, Record
from ludus.environments.user_modeling.retail import DAYS_TO_RETURN, LABEL_FEE, STREETS
from ludus.environments.user_modeling.scenario import Scenario, amount, call, day, pick

_ITEMS = """SELECT * FROM order_items JOIN orders USING (order_id) JOIN customers USING (customer_id)
    JOIN (SELECT product_id, name AS product, colour FROM products) USING (product_id)"""


def cancel(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A pending order is cancelled."""
    order = pick(rng, desk, f"{_ITEMS} WHERE orders.status = 'pending'")
    if order is None:
        return None
    total = sum(
        item["price"] for item in desk.all("SELECT price FROM order_items WHERE order_id = ?", order["order_id"])
    )
    actions = [_identify(order), call("cancel_order", order_id=order["order_id"])]
    goal = [f"I would like to cancel my order with the {order['product']}."]
    return Scenario(goal, _facts(order), actions, [amount(total)])


def send_back(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """An item is returned in time; whether the customer pays for the label depends on the membership."""
    item = _delivered(rng, desk, today, in_time=True)
    if item is None or item["price"] <= LABEL_FEE:
        return None
    fee = item["membership"] == "basic"
    back = call("return_item", order_id=item["order_id"], product_id=item["product_id"], label_fee=fee)
    goal = [f"I want to return the {item['colour']} {item['product']} that you sent me."]
    facts = {key: value for key, value in _facts(item).items() if key != "order number"}
    label = {"label": f"Harbour Lane, order {item['order_id']}"}
    refund = item["price"] - LABEL_FEE * fee
    unknown = "The order number. It stands on the label of the parcel."
    return Scenario(goal, facts, [_identify(item), back], [amount(refund)], belongings=label, unknown=unknown)


def too_late(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """An item can no longer be returned, and the customer must hear the last possible day."""
    item = _delivered(rng, desk, today, in_time=False)
    if item is None:
        return None
    goal = [f"I want to return the {item['colour']} {item['product']} that I bought from you."]
    return Scenario(goal, _facts(item), [_identify(item)], [day(_last_day(item).isoformat())])


def other_colour(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """An item of a pending order is exchanged."""
    item = pick(rng, desk, f"{_ITEMS} WHERE orders.status = 'pending'")
    query = "SELECT * FROM products WHERE name = ? AND product_id != ? AND stock > 0"
    new = pick(rng, desk, query, item["product"], item["product_id"]) if item is not None else None
    if item is None or new is None or new["price"] == item["price"]:
        return None
    if len(desk.all(f"{_ITEMS} WHERE order_id = ? AND product = ?", item["order_id"], item["product"])) > 1:
        return None
    names = {"product_id": item["product_id"], "new_product_id": new["product_id"]}
    goal = [
        f"Can I have the {item['product']} in my order in {new['colour']} and not in {item['colour']}, if you have it?"
    ]
    actions = [_identify(item), call("exchange_item", order_id=item["order_id"], **names)]
    return Scenario(goal, _facts(item), actions, [amount(abs(new["price"] - item["price"]))])


def two_orders(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """One pending order goes to another address, the other is cancelled."""
    query = """SELECT customer_id FROM orders WHERE status = 'pending' GROUP BY customer_id HAVING count(*) = 2"""
    who = pick(rng, desk, query)
    if who is None:
        return None
    query = "SELECT * FROM orders JOIN customers USING (customer_id) WHERE customer_id = ? AND status = 'pending'"
    first, second = desk.all(query, who["customer_id"])
    total = sum(i["price"] for i in desk.all("SELECT price FROM order_items WHERE order_id = ?", second["order_id"]))
    address = f"{rng.randrange(100, 200)} {rng.choice(STREETS)}"
    goal = [
        f"Please send order {first['order_id']} to {address}.",
        f"I also want to cancel order {second['order_id']}.",
    ]
    moved = call("change_address", order_id=first["order_id"], address=address)
    facts = {key: value for key, value in _facts(first).items() if key != "order number"}
    actions = [_identify(first), moved, call("cancel_order", order_id=second["order_id"])]
    return Scenario(goal, facts, actions, [amount(total)])


def damaged(rng: random.Random, desk: Desk, today: date) -> Scenario | None:
    """A damaged item: the customer is transferred to a human."""
    item = pick(rng, desk, f"{_ITEMS} WHERE orders.status = 'delivered'")
    if item is None:
        return None
    goal = [f"The {item['product']} you sent me arrived broken."]
    return Scenario(goal, _facts(item), [call("transfer_to_human", topic="damage")])


KINDS: tuple[Callable[[random.Random, Desk, date], Scenario | None], ...] = (
    cancel,
    send_back,
    too_late,
    other_colour,
    two_orders,
    damaged,
)


def _facts(row: Record) -> dict[str, str]:
    return {"email address": row["email"], "postcode": row["postcode"], "order number": row["order_id"]}


def _identify(row: Record) -> dict[str, Any]:
    return call("find_customer", email=row["email"], postcode=row["postcode"])


def _last_day(item: Record) -> date:
    return date.fromisoformat(item["delivered_on"]) + timedelta(days=DAYS_TO_RETURN[item["membership"]])


def _delivered(rng: random.Random, desk: Desk, today: date, *, in_time: bool) -> Record | None:
    items = desk.all(f"{_ITEMS} WHERE orders.status = 'delivered'")
    fitting = [item for item in items if (_last_day(item) >= today) == in_time]
    return rng.choice(fitting) if fitting else None
