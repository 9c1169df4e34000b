"""The library: members renew loans, reserve titles, and ask to waive fines once a book is back."""

from __future__ import annotations

import random
import sqlite3
from datetime import date, timedelta
from typing import ClassVar, Literal

from ludus import tool
from ludus.agents.user import user_tool
from ludus.environments.user_modeling.desk import NAMES, Desk, Record, money

RENEWAL_DAYS = 21
MOST_RENEWALS = 2
WAIVED_BELOW = 500
TITLES = {
    "The Salt Garden": "adult",
    "Night Trains": "adult",
    "A Map of Rain": "all",
    "The Copper Owl": "all",
    "Winter Harbour": "all",
    "Letters to the Tide": "adult",
    "The Clockmaker's Yard": "all",
    "Small Hours": "adult",
}
Branch = Literal["Weir Street", "Old Town", "Riverside"]


class Library(Desk):
    """Weir Street Library and its branches."""

    schema: ClassVar[str] = """
        CREATE TABLE members (card TEXT, name TEXT, birth_year INTEGER, category TEXT);
        CREATE TABLE titles (title_id TEXT, title TEXT, readers TEXT);
        CREATE TABLE loans (barcode TEXT, title_id TEXT, card TEXT, due_on TEXT, renewals INTEGER);
        CREATE TABLE reservations (title_id TEXT, card TEXT, branch TEXT);
        CREATE TABLE fines (fine_id TEXT, card TEXT, barcode TEXT, amount INTEGER, status TEXT);
        CREATE TABLE returned (barcode TEXT, card TEXT)
    """
    policy: ClassVar[str] = """You work at the desk of Weir Street Library. Today is {today}.

# Policy
- Establish who the member is by card number and year of birth before you tell or change anything.
- A loan can be renewed twice, each time for 21 days from the day it is due, unless another member has reserved the
  title. Tell the member the day on which the book is due, whether it was renewed or not.
- Members can reserve a title and collect it at Weir Street, Old Town or Riverside. Titles for adults cannot be reserved
  by junior members.
- A fine under 5.00 is waived if the member asks for it, once the book is back: ask the member to return the book, which
  they do by putting it into the return box. A fine of 5.00 or more is not waived. Tell the member the amount of the
  fine in either case.
- Hand members over for lost books (topic `lost`) and for donations (topic `donation`), and for nothing else. Do nothing
  else about those requests, and tell them that they are being transferred.
- Do what the member asks for and no more. Decline what the policy does not allow."""

    @classmethod
    def fill(cls, db: sqlite3.Connection, rng: random.Random, today: date) -> None:
        titles = [(f"T{number}", title, readers) for number, (title, readers) in enumerate(TITLES.items())]
        db.executemany("INSERT INTO titles VALUES (?, ?, ?)", titles)
        cards = [f"L{number}" for number in rng.sample(range(100000, 999999), len(NAMES))]
        codes = rng.sample(range(10000, 99999), 2 * len(NAMES))
        for card, name in zip(cards, NAMES, strict=True):
            junior = rng.random() < 0.3
            year = today.year - (rng.randrange(9, 15) if junior else rng.randrange(20, 70))
            db.execute("INSERT INTO members VALUES (?, ?, ?, ?)", (card, name, year, "junior" if junior else "adult"))
            for title in rng.sample(titles, 2):
                barcode, due = f"B{codes.pop()}", today + timedelta(days=rng.randrange(-12, 15))
                loan = (barcode, title[0], card, due.isoformat(), rng.randrange(3))
                db.execute("INSERT INTO loans VALUES (?, ?, ?, ?, ?)", loan)
                if due < today:
                    fine = (f"F{barcode[1:]}", card, barcode, 30 * (today - due).days + rng.randrange(20, 360), "open")
                    db.execute("INSERT INTO fines VALUES (?, ?, ?, ?, ?)", fine)
        for title in rng.sample(titles, 3):
            db.execute("INSERT INTO reservations VALUES (?, ?, ?)", (title[0], rng.choice(cards), "Old Town"))

    @tool
    async def find_member(self, card_number: str, birth_year: int) -> Record:
        """Establish who the member is."""
        query = "SELECT name, category FROM members WHERE card = ? AND birth_year = ?"
        member = self.record("member with this card number and year of birth", query, card_number.strip(), birth_year)
        self.known = card_number.strip()
        return member

    @tool
    async def list_loans(self) -> list[Record]:
        """List the member's loans."""
        query = (
            "SELECT barcode, title_id, title, due_on, renewals FROM loans JOIN titles USING (title_id) WHERE card = ?"
        )
        return self.all(query, self.identified())

    @tool
    async def list_fines(self) -> list[Record]:
        """List the member's fines, and whether the books they are for are back."""
        query = """SELECT fine_id, barcode, amount, status, barcode IN (SELECT barcode FROM returned) AS book_is_back
            FROM fines WHERE card = ?"""
        fines = self.all(query, self.identified())
        return [{**f, "amount": money(f["amount"]), "book_is_back": bool(f["book_is_back"])} for f in fines]

    @tool
    async def find_title(self, title: str) -> Record:
        """Look up a title: who may read it, and how many members have reserved it."""
        query = """SELECT title_id, title, readers, (SELECT count(*) FROM reservations
            WHERE reservations.title_id = titles.title_id) AS reservations FROM titles WHERE lower(title) = lower(?)"""
        return self.record("such title", query, title.strip())

    @tool
    async def renew_loan(self, barcode: str) -> Record:
        """Renew a loan for 21 days from the day it is due."""
        query = "SELECT due_on FROM loans WHERE barcode = ? AND card = ?"
        loan = self.record(f"loan {barcode} of this member", query, barcode, self.identified())
        due = renewed(loan["due_on"])
        self.do("UPDATE loans SET due_on = ?, renewals = renewals + 1 WHERE barcode = ?", due, barcode)
        return {"due_on": due}

    @tool
    async def reserve_title(self, title_id: str, branch: Branch) -> Record:
        """Reserve a title for the member, to be collected at a branch."""
        card = self.identified()
        self.record(f"title {title_id}", "SELECT * FROM titles WHERE title_id = ?", title_id)
        self.do("INSERT INTO reservations VALUES (?, ?, ?)", title_id, card, branch)
        return {"reserved": True}

    @tool
    async def waive_fine(self, fine_id: str) -> Record:
        """Waive a fine."""
        query = "SELECT * FROM fines WHERE fine_id = ? AND card = ? AND status = 'open'"
        fine = self.record(f"open fine {fine_id} of this member", query, fine_id, self.identified())
        self.do("UPDATE fines SET status = 'waived' WHERE fine_id = ?", fine_id)
        return {"waived": money(fine["amount"])}

    @user_tool
    async def read_barcode(self) -> str:
        """Read the barcode on the back of the book that you have in your hand."""
        return self.belongings.get("barcode", "You have no book in your hand.")

    @user_tool
    async def return_book(self) -> str:
        """Put the book that you have in your hand into the return box."""
        barcode = self.belongings.get("barcode", "")
        loan = self.all("SELECT barcode, card FROM loans WHERE barcode = ?", barcode)
        if not loan:
            return "You have no book in your hand."
        self.do("INSERT INTO returned VALUES (?, ?)", barcode, loan[0]["card"])
        self.do("DELETE FROM loans WHERE barcode = ?", barcode)
        return "The box took the book."


def renewed(due_on: str) -> str:
    """The due date of a loan after a renewal."""
    return (date.fromisoformat(due_on) + timedelta(days=RENEWAL_DAYS)).isoformat()
