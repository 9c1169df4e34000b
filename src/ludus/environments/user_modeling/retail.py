"""The shop: customers cancel, change or return orders, by rules that depend on dates and membership."""

from __future__ import annotations

import random
import sqlite3
from datetime import date, timedelta
from typing import ClassVar

from ludus import tool
from ludus.agents.user import user_tool
from ludus.environments.user_modeling.desk import NAMES, Desk, Record, Refused, money, odd_price

LABEL_FEE = 490
DAYS_TO_RETURN = {"basic": 30, "gold": 60}
PRODUCTS = "kettle, floor lamp, wool blanket, bread bin, wall clock, desk chair, tea set, door mat".split(", ")
COLOURS = ("blue", "grey", "red")
STREETS = ("Mill Road", "Station Street", "Orchard Way", "Quay Street", "Castle Hill")


class Retail(Desk):
    """Harbour Lane, a shop for the home."""

    schema: ClassVar[str] = """
        CREATE TABLE customers (customer_id TEXT, name TEXT, email TEXT, postcode TEXT, membership TEXT);
        CREATE TABLE products (product_id TEXT, name TEXT, colour TEXT, price INTEGER, stock INTEGER);
        CREATE TABLE orders (order_id TEXT, customer_id TEXT, status TEXT, delivered_on TEXT, address TEXT);
        CREATE TABLE order_items (order_id TEXT, product_id TEXT, price INTEGER, status TEXT);
        CREATE TABLE refunds (order_id TEXT, product_id TEXT, amount INTEGER)
    """
    policy: ClassVar[str] = """You work at the service desk of Harbour Lane, a shop for the home. Today is {today}.

# Policy
- Establish who the customer is by email address and postcode before you tell or change anything.
- An order can be cancelled as long as it is pending, and only as a whole. Everything paid for it is refunded.
- In a pending order the address can be changed, and an item can be exchanged for the same product in another colour if
  that is in stock. The difference in price is charged or refunded.
- A delivered item can be returned until 30 days after delivery, by gold members until 60 days after it. Later than that
  it cannot be returned: tell the customer the last day on which it could be.
- For a return, 4.90 is kept for the label. Gold members do not pay for the label.
- Tell the customer every amount that is refunded or charged.
- Hand customers over for damaged goods (topic `damage`) and for more than 20 pieces of something (topic `bulk`), and
  for nothing else. Do nothing else about those requests, and tell them that they are being transferred.
- Do what the customer asks for and no more. Decline what the policy does not allow."""

    @classmethod
    def fill(cls, db: sqlite3.Connection, rng: random.Random, today: date) -> None:
        products = []
        for number, name in enumerate(PRODUCTS):
            for colour in COLOURS:
                code = f"{name[:2].upper()}{number}{colour[0].upper()}"
                products.append((code, name, colour, odd_price(rng, 12, 180), rng.randrange(5)))
        db.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?)", products)
        numbers = rng.sample(range(10000, 99999), 3 * len(NAMES))
        for place, name in enumerate(NAMES):
            customer, postcode = f"C{place:02}", f"{rng.choice('BDKNS')}{rng.randrange(100, 999)}"
            email = f"{name.lower().replace(' ', '.')}@example.org"
            membership = rng.choice(["basic", "gold"])
            db.execute("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", (customer, name, email, postcode, membership))
            for status in ("pending", "delivered", rng.choice(["pending", "shipped", "delivered"])):
                delivered = today - timedelta(days=rng.randrange(3, 90)) if status == "delivered" else None
                order, address = f"H{numbers.pop()}", f"{rng.randrange(1, 99)} {rng.choice(STREETS)}"
                day = delivered.isoformat() if delivered else None
                db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", (order, customer, status, day, address))
                for product in rng.sample(products, rng.randrange(1, 4)):
                    line = (order, product[0], product[3], "ordered")
                    db.execute("INSERT INTO order_items VALUES (?, ?, ?, ?)", line)

    @tool
    async def find_customer(self, email: str, postcode: str) -> Record:
        """Establish who the customer is."""
        query = "SELECT customer_id, name, membership FROM customers WHERE lower(email) = lower(?) AND postcode = ?"
        customer = self.record("customer with this email address and postcode", query, email.strip(), postcode.strip())
        self.known = customer["customer_id"]
        return customer

    @tool
    async def list_orders(self) -> list[Record]:
        """List the customer's orders."""
        query = "SELECT order_id, status, delivered_on FROM orders WHERE customer_id = ?"
        return self.all(query, self.identified())

    @tool
    async def get_order(self, order_id: str) -> Record:
        """Look up an order with its items."""
        order = self._order(order_id)
        return {**order, "items": [{**item, "price": money(item["price"])} for item in self._items(order_id)]}

    @tool
    async def find_colours(self, product_name: str) -> list[Record]:
        """List the colours that a product comes in, with price and stock."""
        query = "SELECT product_id, colour, price, stock FROM products WHERE name = lower(?)"
        return [{**product, "price": money(product["price"])} for product in self.all(query, product_name.strip())]

    @tool
    async def cancel_order(self, order_id: str) -> Record:
        """Cancel an order and refund what was paid."""
        self._order(order_id)
        total = sum(item["price"] for item in self._items(order_id))
        self.do("UPDATE orders SET status = 'cancelled' WHERE order_id = ?", order_id)
        self.do("INSERT INTO refunds VALUES (?, NULL, ?)", order_id, total)
        return {"refunded": money(total)}

    @tool
    async def return_item(self, order_id: str, product_id: str, label_fee: bool) -> Record:
        """Take an item back and refund it.

        Args:
            label_fee: whether the price of the label is kept
        """
        item = self._item(order_id, product_id)
        amount = max(item["price"] - LABEL_FEE * label_fee, 0)
        self._set_item(order_id, product_id, "returned")
        self.do("INSERT INTO refunds VALUES (?, ?, ?)", order_id, product_id, amount)
        return {"refunded": money(amount)}

    @tool
    async def exchange_item(self, order_id: str, product_id: str, new_product_id: str) -> Record:
        """Exchange an item of an order for another colour. A difference below zero is refunded."""
        old = self._item(order_id, product_id)
        new = self.record("such product", "SELECT * FROM products WHERE product_id = ?", new_product_id)
        if new["stock"] < 1:
            raise Refused(f"{new_product_id} is out of stock")
        self._set_item(order_id, product_id, "exchanged")
        self.do("INSERT INTO order_items VALUES (?, ?, ?, 'ordered')", order_id, new_product_id, new["price"])
        self.do("UPDATE products SET stock = stock - 1 WHERE product_id = ?", new_product_id)
        difference = new["price"] - old["price"]
        return {"difference": f"{'-' if difference < 0 else ''}{money(abs(difference))}"}

    @tool
    async def change_address(self, order_id: str, address: str) -> Record:
        """Send an order to another address."""
        self._order(order_id)
        self.do("UPDATE orders SET address = ? WHERE order_id = ?", " ".join(address.split()), order_id)
        return {"address": address}

    @user_tool
    async def read_label(self) -> str:
        """Read the label of the parcel that you have at home."""
        return self.belongings.get("label", "There is no parcel.")

    def _order(self, order_id: str) -> Record:
        query = "SELECT order_id, status, delivered_on, address FROM orders WHERE order_id = ? AND customer_id = ?"
        return self.record(f"order {order_id} of this customer", query, order_id, self.identified())

    def _items(self, order_id: str) -> list[Record]:
        query = """SELECT product_id, name, colour, order_items.price, status FROM order_items JOIN products
            USING (product_id) WHERE order_id = ?"""
        return self.all(query, order_id)

    def _item(self, order_id: str, product_id: str) -> Record:
        self._order(order_id)
        for item in self._items(order_id):
            if item["product_id"] == product_id and item["status"] == "ordered":
                return item
        raise Refused(f"there is no {product_id} in order {order_id}")

    def _set_item(self, order_id: str, product_id: str, status: str) -> None:
        query = "UPDATE order_items SET status = ? WHERE order_id = ? AND product_id = ?"
        self.do(query, status, order_id, product_id)
