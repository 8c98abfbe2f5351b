"""The SQL of this store, by name. Text only: nothing here touches a database."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources

from holdfast.model.records import TABLES

#: Columns of the store's one row about itself; the first three after the id are the record `Authority`.
META_COLUMNS = (
    "store_id",
    "last_token",
    "dispatch_paused",
    "dispatch_reason",
    "seq",
    "ts",
    "chain",
    "trimmed_seq",
    "trimmed_chain",
)
#: Table → its columns that are fields of a record, in the order of the fields.
COLUMNS: dict[str, tuple[str, ...]] = {
    name: META_COLUMNS if name == "meta" else kind.__struct_fields__ for name, kind in TABLES.items()
}

_BLOCK = re.compile(r"^-- name: (\w+)\n-- .*\n(?:-- .*\n)*((?:(?!--).*\n)+)", re.MULTILINE)
_SET = re.compile(r"(\w+) = (\?|NULL|'\w+')")


def read_sql(file: str) -> str:
    """Read a file of the folder `stores/sqlite/sql`."""
    return resources.files("holdfast.stores.sqlite").joinpath("sql", file).read_text(encoding="utf-8")


def blocks(text: str) -> dict[str, str]:
    """Split a file into its named blocks, with columns and parameters written out."""
    found = {name: body.strip().rstrip(";") for name, body in _BLOCK.findall(text)}
    for table, columns in COLUMNS.items():
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        replaced = ", ".join(f"{column} = excluded.{column}" for column in columns)
        found = {
            name: body.replace(f"{{{table}}}", names)
            .replace(f"{{{table}?}}", places)
            .replace(f"{{{table}=}}", replaced)
            for name, body in found.items()
        }
    return found


def split(script: str) -> list[str]:
    """Split a script into its statements; `executescript` would end the transaction it is called in."""
    found: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text.strip())
            text = ""
    return found


def inserted(statement: str) -> list[str]:
    """Give the columns an INSERT binds, in order."""
    return statement[statement.index("(") + 1 : statement.index(")")].replace(",", " ").split()


def assigned(statement: str) -> dict[str, str | None]:
    """Give the columns an UPDATE names, in order, that of its WHERE last: `?` where it is bound, else its value."""
    return {name: None if value == "NULL" else value.strip("'") for name, value in _SET.findall(statement)}


#: Files of named blocks.
FILES = ("statements.sql", "workflow_statements.sql")
SQL = {name: body for file in FILES for name, body in blocks(read_sql(file)).items()}
