"""The tables of a row's context: read from its CREATE TABLE statements, and written again for SQLite.

`Schema.of` reads the whole context. Anything else raises `NotExecutable`. Indexes, comments and settings do not change
what a query returns, so they are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus.environments.text_to_sql.dialect import translate
from ludus.environments.text_to_sql.sqltext import (
    MYSQL,
    NAME,
    SIGN,
    SQLITE,
    TEXT,
    WORD,
    NotExecutable,
    Token,
    closing,
    quoted,
    render,
    sign,
    split,
    starts_with,
    statements,
    tokenize,
    word,
)

INTEGER, REAL, STRING, BOOLEAN, DATE, DATETIME, TIME, BYTES = (
    "integer real text boolean date datetime time bytes".split()
)

_KINDS = {
    INTEGER: "int integer bigint smallint mediumint tinyint int2 int4 int8 serial bigserial smallserial year",
    REAL: "decimal numeric real float double money dec number float4 float8",
    STRING: "varchar char text character nvarchar nchar varchar2 tinytext mediumtext longtext clob enum string uuid "
    "bpchar citext",
    BOOLEAN: "boolean bool",
    DATE: "date",
    DATETIME: "datetime timestamp timestamptz",
    TIME: "time timetz",
    BYTES: "blob bytea binary varbinary longblob",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_DECLARED = {INTEGER: "INTEGER", REAL: "REAL", BOOLEAN: "INTEGER", BYTES: "BLOB"}
_CONSTRAINTS = frozenset(
    "not null default primary unique references check auto_increment autoincrement comment collate constraint "
    "generated key on as character charset".split()
)
_SKIPPED = (
    ("create", "index"), ("create", "unique", "index"), ("create", "schema"), ("create", "database"), ("use",),
    ("set",), ("comment",), ("create", "extension"), ("begin",), ("commit",), ("start", "transaction"), ("drop",),
    ("grant",), ("pragma",),
)  # fmt: skip


@dataclass
class Column:
    """A column: its kind, its type for SQLite, and what limits its values."""

    name: str
    kind: str
    declared: str
    nullable: bool = True
    unique: bool = False
    key: bool = False
    references: tuple[str, str | None] | None = None
    choices: list[str] = field(default_factory=list)
    rules: list[Token] = field(default_factory=list)

    def create(self, *, bare: bool) -> str:
        """The definition; a bare one has no constraint."""
        words = [quoted(self.name), word(self.declared)] if self.declared else [quoted(self.name)]
        return render(words if bare else words + self.rules)


@dataclass
class Table:
    """A table, with its columns in order and the rules that concern several columns."""

    name: str
    columns: list[Column]
    rules: list[list[Token]] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)

    def create(self, *, bare: bool = False) -> str:
        """The CREATE TABLE statement."""
        parts = [column.create(bare=bare) for column in self.columns]
        parts += [] if bare else [render(rule) for rule in self.rules]
        return f"CREATE TABLE {quoted(self.name).text} ({', '.join(parts)})"

    def column(self, name: str) -> Column | None:
        """A column by its name in any case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


@dataclass
class Schema:
    """The tables and views of a context, and the statements that fill the tables."""

    dialect: str
    tables: dict[str, Table] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    inserts: list[str] = field(default_factory=list)
    prefixes: set[str] = field(default_factory=lambda: {"public", "dbo", "main"})
    enums: dict[str, list[str]] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)

    @classmethod
    def of(cls, context: str, dialect: str) -> Schema:
        """Read a context. Raises `NotExecutable`."""
        schema = cls(dialect)
        for statement in statements(tokenize(context, dialect)):
            schema._read(statement)
            schema.tokens += [] if starts_with(statement, "insert") else statement
        if not schema.tables:
            raise NotExecutable("no table")
        return schema

    @property
    def dates(self) -> frozenset[str]:
        """The names of the columns that hold dates or times."""
        columns = [column for table in self.tables.values() for column in table.columns]
        return frozenset(column.name.lower() for column in columns if column.kind in (DATE, DATETIME, TIME))

    def query(self, sql: str) -> list[list[Token]]:
        """The statements of a text, for SQLite. Raises `NotExecutable`."""
        return [self._translated(statement) for statement in statements(tokenize(sql, self.dialect))]

    def _translated(self, statement: list[Token]) -> list[Token]:
        prefixes = frozenset(self.prefixes - self.tables.keys())
        return translate(statement, self.dialect, prefixes=prefixes, dates=self.dates)

    def _read(self, statement: list[Token]) -> None:
        if any(starts_with(statement, *words) for words in _SKIPPED):
            return
        words = [token.key for token in statement[:6] if token.kind == WORD]
        if words[:1] == ["insert"]:
            self.inserts.append(render(self._translated(statement)))
        elif words[:2] == ["create", "table"] or (words[:1] == ["create"] and words[2:3] == ["table"]):
            table = _table(statement, self)
            if table.name.lower() in self.tables:
                raise NotExecutable(f"two tables {table.name}")
            self.tables[table.name.lower()] = table
        elif words[:2] == ["create", "view"]:
            self.views.append(render(self._translated(statement)))
        elif words[:2] == ["create", "type"] and "enum" in [token.key for token in statement]:
            values = [token.value() for token in statement if token.kind == TEXT]
            self.enums[statement[2].key] = values
        elif starts_with(statement, "alter", "table"):
            self._alter(statement)
        else:
            raise NotExecutable(f"a statement {render(statement[:2])}")

    def _alter(self, statement: list[Token]) -> None:
        """Read `ALTER TABLE t ADD CONSTRAINT ...`; a new owner changes nothing."""
        keys = [token.key for token in statement]
        at = keys.index("add") if "add" in keys else 0
        table = self.tables.get(keys[at - 1])
        rule = statement[at + 1 : at + 2]
        if at and table is not None and rule and rule[0].key in ("constraint", "primary", "foreign", "unique", "check"):
            _add(table, statement[at + 1 :], self)
            _mark_keys(table)
        elif "owner" not in keys:
            raise NotExecutable("a statement ALTER TABLE")


def _table(statement: list[Token], schema: Schema) -> Table:
    opening = next((at for at, token in enumerate(statement) if token == sign("(")), -1)
    if opening < 2:
        raise NotExecutable("a CREATE TABLE without columns")
    names = [token for token in statement[2:opening] if token.is_name]
    if len(names) > 1 and statement[opening - 2] == sign("."):
        schema.prefixes.add(names[-2].key)
    table = Table(_plain(names[-1]), [])
    for part in split(statement[opening + 1 : closing(statement, opening)]):
        if part:
            _add(table, part, schema)
    _mark_keys(table)
    if not table.columns:
        raise NotExecutable(f"a table {table.name} without columns")
    return table


def _mark_keys(table: Table) -> None:
    for names_of_key in table.keys:
        for name in names_of_key:
            if (column := table.column(name)) is None:
                raise NotExecutable(f"a key of the unknown column {name}")
            column.key = column.key or len(names_of_key) == 1


def _plain(token: Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == NAME else token.text


def _add(table: Table, part: list[Token], schema: Schema) -> None:
    """Read one definition of a table: a column, or a rule of the table."""
    if starts_with(part, "constraint"):
        part = part[1:] if len(part) > 1 and part[1].key in ("primary", "foreign", "unique", "check") else part[2:]
    first, second = part[0], part[1] if len(part) > 1 else sign("")
    if first.kind == WORD and first.key in ("key", "index", "fulltext", "spatial", "exclude") and _opens(part):
        return
    if starts_with(part, "primary", "key"):
        table.keys.append(tuple(_names(part)))
        table.rules.append([*part[:2], *_bracket(part)])
    elif (first.kind == WORD and first.key == "unique" and (second == sign("(") or second.key in ("key", "index"))) or (
        starts_with(part, "unique") and _opens(part)
    ):
        table.rules.append([first, *_bracket(part)])
    elif starts_with(part, "foreign", "key"):
        _foreign(table, part, schema)
    elif first.kind == WORD and first.key == "check" and second == sign("("):
        table.rules.append([first, *schema._translated(part[1 : closing(part, 1) + 1])])
    elif first.is_name:
        table.columns.append(_column(part, schema))
    else:
        raise NotExecutable(f"a definition {render(part[:4])}")


def _opens(part: list[Token]) -> bool:
    return any(token == sign("(") for token in part[1:3])


def _bracket(part: list[Token]) -> list[Token]:
    """The names in the first brackets, without the lengths and orders that MySQL allows there."""
    names = [quoted(name) for name in _names(part)]
    return [sign("("), *[token for name in names for token in (name, sign(","))][:-1], sign(")")]


def _names(part: list[Token]) -> list[str]:
    opening = part.index(sign("("))
    return [_plain(item[0]) for item in split(part[opening + 1 : closing(part, opening)]) if item]


def _foreign(table: Table, part: list[Token], schema: Schema) -> None:
    names = _names(part)
    behind = closing(part, part.index(sign("("))) + 1
    target, theirs = _target(part, behind, schema)
    if len(names) == 1:
        if (column := table.column(names[0])) is not None:
            column.references = (target, theirs)
    else:
        raise NotExecutable("a foreign key of several columns")


def _target(part: list[Token], at: int, schema: Schema) -> tuple[str, str | None]:
    """The table and the column behind REFERENCES."""
    at += 1
    while at + 2 < len(part) and part[at + 1] == sign("."):
        at += 2
    if at >= len(part):
        raise NotExecutable("REFERENCES without a table")
    columns = _names(part[at + 1 :]) if at + 1 < len(part) and part[at + 1] == sign("(") else []
    return _plain(part[at]), columns[0] if columns else None


def _column(part: list[Token], schema: Schema) -> Column:
    name, at = _plain(part[0]), 1
    while at < len(part) and not (part[at].kind == WORD and part[at].key in _CONSTRAINTS - {"character"}):
        at = closing(part, at) + 1 if part[at] == sign("(") else at + 1
    declared = part[1:at]
    column = _typed(name, declared, schema)
    _constrain(column, part[at:], schema)
    return column


def _typed(name: str, declared: list[Token], schema: Schema) -> Column:
    first = declared[0].key if declared else ""
    if any(token.kind == SIGN and token.text in "[]" for token in declared):
        raise NotExecutable(f"a column {name} of arrays")
    tiny = first == "tinyint" and render(declared[1:4]) == "( 1 )"
    kind = BOOLEAN if tiny else _KIND_OF.get(first, STRING if first in schema.enums else "")
    if schema.dialect == SQLITE:
        kind = kind or (REAL if first else STRING)
        return Column(name, kind, " ".join(token.text for token in declared))
    if not kind:
        raise NotExecutable(f"a column {name} of the type {render(declared) or 'nothing'}")
    column = Column(name, kind, _DECLARED.get(kind, "TEXT"))
    column.choices = schema.enums.get(first, [token.value() for token in declared if token.kind == TEXT])
    if kind == STRING and schema.dialect == MYSQL:
        column.declared += " COLLATE NOCASE"
    column.nullable = "serial" not in first
    return column


def _constrain(column: Column, tokens: list[Token], schema: Schema) -> None:
    """Read the constraints of a column that SQLite knows."""
    at = 0
    while at < len(tokens):
        key, behind = tokens[at].key, tokens[at + 1] if at + 1 < len(tokens) else sign("")
        if key == "not" and behind.key == "null":
            column.nullable, at = False, at + 2
            column.rules += [word("NOT"), word("NULL")]
        elif key == "primary":
            column.key, column.nullable, at = True, False, at + 2
            column.rules += [word("PRIMARY"), word("KEY")]
        elif key == "unique":
            column.unique, at = True, at + 1
            column.rules.append(word("UNIQUE"))
        elif key == "references":
            column.references = _target(tokens, at, schema)
            at += 2
            while at < len(tokens) and tokens[at] == sign("."):
                at += 2
            at = closing(tokens, at) + 1 if at < len(tokens) and tokens[at] == sign("(") else at
        elif key == "default":
            end = _default_end(tokens, at + 1)
            value = schema._translated(tokens[at + 1 : end])
            column.rules += [word("DEFAULT"), sign("("), *value, sign(")")]
            at = end
        elif key == "check" and behind == sign("("):
            end = closing(tokens, at + 1) + 1
            column.rules += [word("CHECK"), *schema._translated(tokens[at + 1 : end])]
            at = end
        elif key in ("generated", "as") and behind != sign("(") and "identity" in [token.key for token in tokens]:
            at = next(place for place, token in enumerate(tokens) if token.key == "identity") + 1
        elif key in ("generated", "as"):
            raise NotExecutable(f"a computed column {column.name}")
        elif key == "on":
            at += 4 if tokens[at + 2 : at + 3] and tokens[at + 2].key in ("set", "no") else 3
        else:  # AUTO_INCREMENT, COMMENT 'text', COLLATE name, CONSTRAINT name, NULL
            at += 2 if key in ("comment", "collate", "charset", "constraint") else 1


def _default_end(tokens: list[Token], at: int) -> int:
    if at < len(tokens) and tokens[at].kind == SIGN and tokens[at].text in "+-":
        at += 1
    at += 1
    if at < len(tokens) and tokens[at] == sign("("):
        at = closing(tokens, at) + 1
    while at + 1 < len(tokens) and tokens[at].kind == SIGN and tokens[at].text == "::":
        at += 2
    if at - 1 < len(tokens) and tokens[at - 1] == sign("("):
        at = closing(tokens, at - 1) + 1
    return at
