#!/bin/bash
cd /app
python3 - <<'P'
import json, sqlite3
db = sqlite3.connect("file:shop.db?mode=ro", uri=True)
paid = "FROM customer c JOIN orders o ON o.customer = c.id JOIN item i ON i.orders = o.id WHERE o.status = 'paid'"
revenue = dict(db.execute(f"SELECT c.country, SUM(i.quantity * i.cents) {paid} GROUP BY c.country"))
name, month, _ = db.execute(
    f"SELECT c.name, SUBSTR(o.day, 1, 7) AS month, SUM(i.quantity * i.cents) AS total {paid} GROUP BY c.id, month ORDER BY total DESC"
).fetchone()
never = db.execute("SELECT name FROM customer WHERE id NOT IN (SELECT customer FROM orders WHERE status = 'paid') ORDER BY name")
json.dump({"revenue": revenue, "best_customer": name, "month": month, "never_paid": [n for (n,) in never]}, open("answer.json", "w"))
P
