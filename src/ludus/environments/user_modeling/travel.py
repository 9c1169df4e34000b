"""The ferry line: customers cancel or move bookings, and only the customer can approve a payment."""

from __future__ import annotations

import random
import sqlite3
from datetime import date, timedelta
from typing import Any, ClassVar, Literal

from ludus import tool
from ludus.agents.user import user_tool
from ludus.environments.user_modeling.desk import NAMES, Desk, Record, Refused, cents, money, odd_price

CHANGE_FEE = 1190
VOUCHER_PERCENT = 60
VOUCHER_DAYS = 7
PORTS = ("Norhaven", "Skagby", "Vik")
ROUTES = [(here, there) for here in PORTS for there in PORTS if here != there]
TIMES = ("07:15", "13:40", "19:05")


class Travel(Desk):
    """Sund Ferries."""

    schema: ClassVar[str] = """
        CREATE TABLE sailings (sailing_id TEXT, origin TEXT, destination TEXT, day TEXT, time TEXT, price INTEGER,
            seats_left INTEGER);
        CREATE TABLE bookings (booking_id TEXT, surname TEXT, sailing_id TEXT, fare TEXT, passengers INTEGER,
            status TEXT);
        CREATE TABLE charges (booking_id TEXT, amount INTEGER, status TEXT);
        CREATE TABLE refunds (booking_id TEXT, amount INTEGER, kind TEXT)
    """
    policy: ClassVar[str] = """You work at the service desk of Sund Ferries. Today is {today}.

# Policy
- Establish who the customer is by booking reference and surname before you tell or change anything.
- A booking with the fare `flex` can be cancelled until the day before it departs. All of it is refunded as money.
- A booking with the fare `saver` is never refunded as money. Until 7 days before it departs it can be cancelled for a
  voucher over 60 percent of its price: tell the customer what the voucher would be worth, and cancel only if they want
  it.
- A booking can be moved to another sailing on the same route with enough seats left. If the new sailing is dearer, the
  difference is charged for every passenger; if it is cheaper, nothing is refunded. With the fare `saver`, 11.90 is
  charged on top for every passenger.
- What is to be paid is charged before the booking is moved: request the payment of the whole amount, ask the customer
  to approve the payment in their banking app, and move the booking when they have.
- Tell the customer every amount that is charged or refunded.
- Hand customers over for groups of more than 9 passengers (topic `groups`) and for help on board (topic `assistance`),
  and for nothing else. Do nothing else about those requests, and tell them that they are being transferred.
- Do what the customer asks for and no more. Decline what the policy does not allow."""

    @classmethod
    def fill(cls, db: sqlite3.Connection, rng: random.Random, today: date) -> None:
        sailings: list[tuple[Any, ...]] = []
        for days in (2, 5, 12, 20, 33):
            for origin, destination in ROUTES:
                day = (today + timedelta(days=days)).isoformat()
                number, price = f"S{len(sailings) + 101}", odd_price(rng, 18, 75)
                sailings.append((number, origin, destination, day, rng.choice(TIMES), price, rng.randrange(0, 60)))
        db.executemany("INSERT INTO sailings VALUES (?, ?, ?, ?, ?, ?, ?)", sailings)
        for reference, name in zip(rng.sample(range(1000, 9999), 3 * len(NAMES)), 3 * NAMES, strict=True):
            sailing, fare = rng.choice(sailings), rng.choice(["saver", "flex"])
            booking = (f"SF{reference}", name.split()[1], sailing[0], fare, rng.randrange(1, 5), "booked")
            db.execute("INSERT INTO bookings VALUES (?, ?, ?, ?, ?, ?)", booking)

    @tool
    async def find_booking(self, booking_id: str, surname: str) -> Record:
        """Establish who the customer is, and look up the booking with its sailing."""
        query = "SELECT * FROM bookings WHERE booking_id = ? AND lower(surname) = lower(?)"
        booking = self.record("booking with this reference and surname", query, booking_id.strip(), surname.strip())
        self.known = booking["surname"]
        sailing = self._sailing(booking["sailing_id"])
        return {**booking, "sailing": sailing, "paid": money(cents(float(sailing["price"])) * booking["passengers"])}

    @tool
    async def find_sailings(self, origin: str, destination: str) -> list[Record]:
        """List the sailings of a route with the price for one passenger."""
        query = "SELECT * FROM sailings WHERE lower(origin) = lower(?) AND lower(destination) = lower(?) ORDER BY day"
        sailings = self.all(query, origin.strip(), destination.strip())
        return [{**sailing, "price": money(sailing["price"])} for sailing in sailings]

    @tool
    async def request_payment(self, booking_id: str, amount: float) -> Record:
        """Ask the customer's bank for a payment, which the customer has to approve.

        Args:
            amount: the whole amount for the booking
        """
        self._booking(booking_id)
        self.do("INSERT INTO charges VALUES (?, ?, 'requested')", booking_id, cents(amount))
        return {"requested": money(cents(amount)), "status": "waits for the customer's approval"}

    @tool
    async def change_booking(self, booking_id: str, sailing_id: str) -> Record:
        """Move a booking to another sailing, once what is to be paid for it has been approved."""
        booking, new = self._booking(booking_id), self._sailing(sailing_id)
        if self.all("SELECT * FROM charges WHERE booking_id = ? AND status = 'requested'", booking_id):
            raise Refused("the customer has not approved the payment")
        if new["seats_left"] < booking["passengers"]:
            raise Refused(f"{sailing_id} has {new['seats_left']} seats left")
        seats = "UPDATE sailings SET seats_left = seats_left + ? WHERE sailing_id = ?"
        self.do(seats, booking["passengers"], booking["sailing_id"])
        self.do(seats, -booking["passengers"], sailing_id)
        self.do("UPDATE bookings SET sailing_id = ? WHERE booking_id = ?", sailing_id, booking_id)
        return {"sailing": self._sailing(sailing_id)}

    @tool
    async def cancel_booking(self, booking_id: str, refund: Literal["money", "voucher", "none"]) -> Record:
        """Cancel a booking.

        Args:
            refund: all of it as money, a voucher over 60 percent, or nothing
        """
        booking = self._booking(booking_id)
        price = cents(float(self._sailing(booking["sailing_id"])["price"])) * booking["passengers"]
        amount = {"money": price, "voucher": voucher(price), "none": 0}[refund]
        self.do("UPDATE bookings SET status = 'cancelled' WHERE booking_id = ?", booking_id)
        self.do("INSERT INTO refunds VALUES (?, ?, ?)", booking_id, amount, refund)
        return {"refunded": money(amount), "as": refund}

    @user_tool
    async def approve_payment(self) -> str:
        """Approve the payment that waits in your banking app."""
        mine = "status = 'requested' AND booking_id = ?"
        booking = self.belongings.get("booking", "")
        waiting = self.all(f"SELECT amount FROM charges WHERE {mine}", booking)
        if not waiting:
            return "No payment is waiting."
        self.do(f"UPDATE charges SET status = 'approved' WHERE {mine}", booking)
        return f"Approved: {money(sum(charge['amount'] for charge in waiting))}"

    def _booking(self, booking_id: str) -> Record:
        query = "SELECT * FROM bookings WHERE booking_id = ? AND surname = ? AND status = 'booked'"
        return self.record(f"booking {booking_id} of this customer", query, booking_id, self.identified())

    def _sailing(self, sailing_id: str) -> Record:
        sailing = self.record(f"sailing {sailing_id}", "SELECT * FROM sailings WHERE sailing_id = ?", sailing_id)
        return {**sailing, "price": money(sailing["price"])}


def voucher(price: int) -> int:
    """The value of a voucher for a cancelled booking, in cents."""
    return (price * VOUCHER_PERCENT + 50) // 100
