"""Rows for `text_to_sql`: questions about two tables, with a gold query for each.

A database has a table of owners (members, farms, ships) and one of what belongs to them (loans, harvests, voyages).
Every question says which columns to give and what to do with ties and with owners that have nothing, so that one
meaning is left. The last quarter of the rows is about databases that no other row has: hold those out.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

SYSTEM = (
    "Answer the question about the database with one SQL statement for the dialect that is named. "
    "Write it in a ```sql block."
)


class Database(NamedTuple):
    """Names of the two tables, of their columns, and two values of the column `status`."""

    owners: str
    owner: str
    name: str
    kind: str
    kinds: tuple[str, str]
    things: str
    thing: str
    amount: str
    day: str
    status: str
    statuses: tuple[str, str]

    @property
    def schema(self) -> str:
        """The `CREATE TABLE` statements."""
        return (
            f"CREATE TABLE {self.owners} (\n  {self.owner}_id INTEGER PRIMARY KEY,\n  {self.name} TEXT NOT NULL,\n"
            f"  {self.kind} TEXT NOT NULL\n);\n"
            f"CREATE TABLE {self.things} (\n  {self.thing}_id INTEGER PRIMARY KEY,\n"
            f"  {self.owner}_id INTEGER NOT NULL REFERENCES {self.owners}({self.owner}_id),\n"
            f"  {self.amount} INTEGER NOT NULL,\n  {self.day} TEXT NOT NULL,\n  {self.status} TEXT\n);"
        )


def _database(line: str) -> Database:
    owners, owner, name, kind, kinds, things, thing, amount, day, status, statuses = line.split()
    pairs = [(first, second) for first, second in (kinds.split("|"), statuses.split("|"))]
    return Database(owners, owner, name, kind, pairs[0], things, thing, amount, day, status, pairs[1])


DATABASES = [
    _database(line)
    for line in """
members member name city Porto|Leeds loans loan fee lent_on condition worn|torn
farms farm farm_name region North|Coast harvests harvest tonnes picked_on grade A|B
ships ship ship_name flag Malta|Panama voyages voyage days sailed_on cargo grain|steel
clinics clinic title district East|Old_Town visits visit minutes visited_on outcome cured|referred
artists artist full_name country Chile|Norway paintings painting price sold_on technique oil|ink
drivers driver name licence B|C trips trip kilometres driven_on vehicle van|truck
teachers teacher surname subject Latin|Physics lessons lesson pupils held_on room hall|lab
bakeries bakery label quarter Harbour|Station orders_taken order_taken loaves ordered_on channel phone|web
telescopes telescope code site Summit|Plain observations observation seconds observed_on weather clear|haze
rangers ranger nickname park Lakes|Pines patrols patrol hours walked_on finding tracks|litter
studios studio studio_name genre jazz|folk recordings recording takes recorded_on medium tape|disc
museums museum title canton Uri|Zug exhibits exhibit value acquired_on origin gift|loan
pilots pilot callsign base Bodo|Kiruna flights flight fuel flown_on incident bird|ice
brewers brewer brand valley Upper|Lower batches batch litres brewed_on fault sour|flat
players player alias league first|second matches match points played_on injury knee|wrist
tailors tailor surname street Mill|King garments garment cost sewn_on fabric wool|linen
""".strip().splitlines()
]

#: Each question with its gold query. `{N}`, `{M}` and `{K}` are numbers, `{Y}` is a year.
QUESTIONS = [
    (
        "How many {things} have {amount} above {N}?",
        "SELECT COUNT(*) FROM {things} WHERE {amount} > {N};",
    ),
    (
        "Which {owners} have no {things} at all? Give the {name}.",
        "SELECT o.{name} FROM {owners} o WHERE NOT EXISTS "
        "(SELECT 1 FROM {things} t WHERE t.{owner}_id = o.{owner}_id);",
    ),
    (
        "Give the {name} of every {owner} and the number of its {things}, 0 where there are none. "
        "Two {owners} may have the same {name}: they are two rows.",
        "SELECT o.{name}, COUNT(t.{thing}_id) FROM {owners} o LEFT JOIN {things} t ON t.{owner}_id = o.{owner}_id "
        "GROUP BY o.{owner}_id;",
    ),
    (
        "Give each {kind} of {owners} with the sum of {amount} over the {things} of its {owners}. "
        "Leave out a {kind} without {things}.",
        "SELECT o.{kind}, SUM(t.{amount}) FROM {owners} o JOIN {things} t ON t.{owner}_id = o.{owner}_id "
        "GROUP BY o.{kind};",
    ),
    (
        "Which {things} have the highest {amount}? Give the {thing}_id of all that share it.",
        "SELECT {thing}_id FROM {things} WHERE {amount} = (SELECT MAX({amount}) FROM {things});",
    ),
    (
        "Which {owners} have at least {K} {things}? Give {owner}_id and {name}.",
        "SELECT o.{owner}_id, o.{name} FROM {owners} o JOIN {things} t ON t.{owner}_id = o.{owner}_id "
        "GROUP BY o.{owner}_id HAVING COUNT(*) >= {K};",
    ),
    (
        "How many different {owners} had at least one of the {things} in {Y} ({day})?",
        "SELECT COUNT(DISTINCT {owner}_id) FROM {things} WHERE {day} >= '{Y}-01-01' AND {day} < '{Y1}-01-01';",
    ),
    (
        "Give the {thing}_id of all {things} whose {status} is not '{S}', also of those that have no {status}.",
        "SELECT {thing}_id FROM {things} WHERE {status} <> '{S}' OR {status} IS NULL;",
    ),
    (
        "What is the second highest {amount} among the {things}? Equal values count once.",
        "SELECT MAX({amount}) FROM {things} WHERE {amount} < (SELECT MAX({amount}) FROM {things});",
    ),
    (
        "For which {owners} does every one of their {things} have {amount} of at least {M}? "
        "Only {owners} with {things} count. Give {owner}_id.",
        "SELECT {owner}_id FROM {things} GROUP BY {owner}_id HAVING MIN({amount}) >= {M};",
    ),
    (
        "Give {owner}_id and the latest {day} of each of the {owners} whose {kind} is '{V}' and that have {things}.",
        "SELECT o.{owner}_id, MAX(t.{day}) FROM {owners} o JOIN {things} t ON t.{owner}_id = o.{owner}_id "
        "WHERE o.{kind} = '{V}' GROUP BY o.{owner}_id;",
    ),
    (
        "Which {owners} have a sum of {amount} above the mean {amount} of a single one of the {things}? "
        "Give {owner}_id and the sum.",
        "SELECT {owner}_id, SUM({amount}) FROM {things} GROUP BY {owner}_id "
        "HAVING SUM({amount}) > (SELECT AVG({amount}) FROM {things});",
    ),
    (
        "How many {things} of {owners} whose {kind} is '{V}' have no {status}?",
        "SELECT COUNT(*) FROM {things} t JOIN {owners} o ON o.{owner}_id = t.{owner}_id "
        "WHERE o.{kind} = '{V}' AND t.{status} IS NULL;",
    ),
    (
        "Give every {kind} with the number of its {owners} that have no {things}. "
        "Leave out a {kind} where that number is 0.",
        "SELECT o.{kind}, COUNT(*) FROM {owners} o WHERE NOT EXISTS "
        "(SELECT 1 FROM {things} t WHERE t.{owner}_id = o.{owner}_id) GROUP BY o.{kind};",
    ),
    (
        "Which {things} have more {amount} than the mean of all {things} of the same {owner}? Give {thing}_id.",
        "SELECT t.{thing}_id FROM {things} t WHERE t.{amount} > "
        "(SELECT AVG(u.{amount}) FROM {things} u WHERE u.{owner}_id = t.{owner}_id);",
    ),
    (
        "Give the {name} of the {owners} whose {things} include both {status} '{S}' and {status} '{S1}'.",
        "SELECT o.{name} FROM {owners} o WHERE EXISTS (SELECT 1 FROM {things} t WHERE t.{owner}_id = o.{owner}_id "
        "AND t.{status} = '{S}') AND EXISTS (SELECT 1 FROM {things} u WHERE u.{owner}_id = o.{owner}_id "
        "AND u.{status} = '{S1}');",
    ),
]


def sql_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Different rows. The last quarter asks about a quarter of the databases, drawn by the seed."""
    draw = random.Random(seed)
    databases = draw.sample(DATABASES, len(DATABASES))
    border = len(databases) * 3 // 4
    seen = _drawn(draw, databases[:border], count - count // 4)
    return [*seen, *_drawn(draw, databases[border:], count // 4)]


def _drawn(draw: random.Random, databases: list[Database], count: int) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(100 * count):
        database, (question, gold) = draw.choice(databases), draw.choice(QUESTIONS)
        year, statuses = draw.randint(2012, 2023), draw.sample(database.statuses, 2)
        fields = {
            **database._asdict(),
            "N": draw.randint(3, 60),
            "M": draw.randint(3, 9),
            "K": draw.randint(2, 4),
            "Y": year,
            "Y1": year + 1,
            "V": draw.choice(database.kinds),
            "S": statuses[0],
            "S1": statuses[1],
        }
        row = _row(database.schema, question.format(**fields), gold.format(**fields))
        rows[row["sql_prompt"]] = row
        if len(rows) == count:
            break
    return list(rows.values())


def _row(schema: str, question: str, gold: str) -> dict[str, Any]:
    user = (
        f"<DIALECT>sqlite</DIALECT>\n\n<DATABASE_CONTEXT>\n{schema}\n</DATABASE_CONTEXT>\n\n"
        f"<QUESTION>\n{question}\n</QUESTION>"
    )
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return {
        "responses_create_params": {"input": messages, "max_output_tokens": 128},
        "sql": gold,
        "sql_dialect": "sqlite",
        "sql_prompt": question,
        "sql_context": schema,
    }
