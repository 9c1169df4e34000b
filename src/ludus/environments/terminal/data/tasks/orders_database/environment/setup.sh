python3 - <<'P'
import sqlite3
db = sqlite3.connect("shop.db")
db.executescript("""
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, country TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, day TEXT, status TEXT);
CREATE TABLE item (orders INTEGER, product TEXT, quantity INTEGER, cents INTEGER);
""")
db.executemany("INSERT INTO customer VALUES (?, ?, ?)", [(1, "Uma", "IS"), (2, "Ivo", "HR"), (3, "Lea", "IS"), (4, "Tom", "IE"), (5, "Ana", "HR")])
db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [
    (1, 1, "2024-01-05", "paid"), (2, 1, "2024-01-29", "paid"), (3, 2, "2024-01-31", "paid"), (4, 2, "2024-02-01", "paid"),
    (5, 3, "2024-02-02", "open"), (6, 4, "2024-02-03", "cancelled"), (7, 5, "2024-02-04", "paid")])
db.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", [
    (1, "tea", 3, 250), (1, "cup", 1, 900), (2, "tea", 2, 250), (3, "pot", 1, 1900), (4, "pot", 1, 1900), (5, "pot", 9, 1900),
    (6, "cup", 9, 900), (7, "tea", 1, 250)])
db.commit()
P
