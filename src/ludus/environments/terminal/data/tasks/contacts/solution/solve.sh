#!/bin/bash
cd /app
python3 - <<'P'
import csv, re
found = {}
for row in csv.DictReader(open("contacts.csv", newline="")):
    email, name = row["email"].strip().lower(), " ".join(row["name"].split())
    phone = row["phone"].strip()
    sign = "+" if phone.startswith(("+", "00")) else ""
    digits = re.sub(r"\D", "", phone.removeprefix("00") if phone.startswith("00") else phone)
    if email:
        entry = found.setdefault(email, ["", ""])
        entry[0] = entry[0] or name
        entry[1] = entry[1] or (sign + digits if digits else "")
with open("clean.csv", "w", newline="") as file:
    csv.writer(file).writerows([["name", "email", "phone"], *([name, email, phone] for email, (name, phone) in found.items())])
P
