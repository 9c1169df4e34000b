"""Whether a row fits the loaded tables. A row that does not fit cannot be judged: it is refused before it is played.

A row fits if its actions change the tables, and if the tables hold all that it names: ids, people, and, where an action
names a row by id, the texts that the request quotes and the owners in phrases such as "Lena's last email".
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from ludus.environments.workplace_assistant.desk import Desk, is_writing
from ludus.environments.workplace_assistant.grading import changes_nothing
from ludus.environments.workplace_assistant.tables import Office
from ludus.errors import Failure
from ludus.response import texts_of
from ludus.runtime.encoding import encode
from ludus.task import Task

#: The arguments that name a person who must exist, and how an update names one.
PEOPLE = frozenset({"recipient", "participant_email", "assigned_to_email"})

_QUOTES = re.compile(r"""(?<!\w)['\u2018](.{3,300}?)['\u2019](?!\w)|["\u201c](.{3,300}?)["\u201d]""")
_OWNER = re.compile(
    r"(?:([\w'\u2019]+)\s+)?\b([^\W\d_]{2,})['\u2019]s\s+(?:[\w-]+\s+){0,3}?"
    r"(?:e-?mails?|mails?|messages?|events?|meetings?|appointments?|tasks?|customers?|leads?|prospects?)\b",
    re.IGNORECASE,
)
#: Words before 's that are no names: contractions, and moments.
_NO_NAMES = frozenset(
    "he here how it let she that there this what when where who"
    " today tomorrow tonight yesterday morning afternoon evening noon week weekend month quarter year"
    " monday tuesday wednesday thursday friday saturday sunday"
    " january february march april may june july august september october november december".split()
)
#: After one of these words comes no name: "my boss's meeting".
_BEFORE_NOUNS = frozenset("a an any each every her his last my next our previous the their this your".split())


async def run_actions(desk: Desk, task: Task, actions: list[dict[str, Any]]) -> Office:
    """Run a row's actions in a fresh session and return its tables. Raises `Failure` if the row does not fit them."""
    said = " ".join(texts_of(item) for item in task.input if item.get("role") == "user")
    known, by_id = said.lower(), False
    for action in actions:
        arguments = object_of(action["arguments"]) or {}
        by_id |= _check_ids(desk.office, action["name"], arguments)
        _check_people(desk.office, action["name"], arguments, known)
        before = desk.office.edits
        text = encode(arguments).decode()
        answer = await desk.call(action["name"], text)
        if is_writing(action["name"], type(desk)) and desk.office.edits == before:
            raise _unfit(f"the row's action {action['name']} has no effect on these tables: {answer:.200}")
        known += " ".join(str(value) for value in arguments.values()).lower()
    if actions and changes_nothing(desk.office):
        raise _unfit("the row's actions leave the tables as they are")
    if by_id:
        _check_request(desk.office, said, known.removeprefix(said.lower()))
    return desk.office


def object_of(arguments: Any) -> dict[str, Any] | None:
    """The arguments of an action; None if they are not a JSON object."""
    try:
        parsed = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _check_ids(office: Office, action: str, arguments: dict[str, Any]) -> bool:
    """Refuse an id that the tables do not hold. Returns whether the action names a row by its id."""
    by_id = False
    for table in (office.emails, office.events, office.tasks, office.customers):
        key = table.sheet.key
        if (number := arguments.get(key)) is not None:
            by_id = True
            if not isinstance(number, str) or table.find(number) is None:
                raise _missing(f"{key} {number!s:.80}", action)
    visitor = arguments.get("visitor_id")
    if visitor is not None and not (isinstance(visitor, str) and visitor in office.tables.visitors):
        raise _missing(f"visitor_id {visitor!s:.80}", action)
    return by_id


def _check_people(office: Office, action: str, arguments: dict[str, Any], known: str) -> None:
    """Refuse the address of a person who is in no table, in no earlier action and not in the request."""
    named = [arguments.get(key) for key in PEOPLE]
    if arguments.get("field") in PEOPLE:
        named.append(arguments.get("new_value"))
    for address in (value for value in named if isinstance(value, str) and "@" in value):
        if address.strip().lower() not in known and not office.tables.hold(address):
            raise _missing(f"{address:.80}", action)


def _check_request(office: Office, said: str, arguments: str) -> None:
    """Refuse a request that quotes a text or names an owner missing from all tables and actions.

    Only quotes of several words without digits count: others may be dates, durations or settings.
    """
    arguments = " ".join(arguments.replace("_", " ").split())
    for match in _QUOTES.finditer(said):
        quoted = " ".join((match[1] or match[2]).split()).strip(".,!?;: ")
        is_name = " " in quoted and not any(char.isdigit() for char in quoted)
        if is_name and quoted.lower() not in arguments and not office.tables.hold(quoted):
            raise _missing(f"{quoted!r:.120}", "")
    for match in _OWNER.finditer(said):
        before, name = (match[1] or "").lower(), match[2].lower()
        if name not in _NO_NAMES and before not in _BEFORE_NOUNS and not office.tables.hold(name):
            raise _missing(f"{match[2]:.80}", "")


def _missing(what: str, action: str) -> Failure:
    return _unfit(f"the tables hold no {what}, which the row's {f'action {action}' if action else 'request'} names")


def _unfit(problem: str) -> Failure:
    hint = "If the row was made for other tables, name their folder: --set resources.tables=FOLDER"
    return Failure("bad_row", f"{problem}. {hint}")
