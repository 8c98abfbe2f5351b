"""An order and its confirmation in one transaction: both are there, or neither.

    python app.py

The application keeps its tables in the same SQLite file as its jobs. `connection=` makes an enqueue part of the open
transaction: no outbox table, no relay, no gap between the two.
"""

import sqlite3
from contextlib import closing

from holdfast import Holdfast

hf = Holdfast("sqlite:shop.db")


@hf.task(queue="mail")
def confirm(order: str) -> str:
    return f"order {order} is confirmed"


def place_order(database: sqlite3.Connection, order: str, cents: int) -> None:
    """Write an order and enqueue its confirmation, together."""
    with database:  # commits at the end, rolls back on an exception
        database.execute("BEGIN IMMEDIATE")
        confirm.options(connection=database).enqueue(order)
        database.execute("INSERT INTO orders VALUES (?, ?)", [order, cents])  # refuses a total of nothing


if __name__ == "__main__":
    hf.open()  # before the first transaction of our own
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (name PRIMARY KEY, cents CHECK (cents > 0))")
        for name, total in [("first", 1999), ("second", 0), ("third", 500)]:
            try:
                place_order(db, name, total)
            except sqlite3.IntegrityError as refused:
                print(f"{name} was refused: {refused}")
        print("orders:", [row[0] for row in db.execute("SELECT name FROM orders ORDER BY name")])
    hf.work(until_idle=True)
    print("mail:", sorted(job.result() for job in hf.jobs()))
    hf.close()
