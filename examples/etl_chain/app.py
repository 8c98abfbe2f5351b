"""Extract, transform, load: each step is a job that enqueues the next, under an id made from the batch.

    python app.py

If a worker dies between two steps, the step runs again and meets the job it had made: no batch is loaded twice.
"""

import sqlite3
from contextlib import closing

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")
SOURCE = {"monday": ["3 apples", "5 pears"], "tuesday": ["2 apples", "bad line"]}


@hf.task(queue="etl")
def extract(batch: str) -> int:
    lines = SOURCE[batch]
    transform.options(id=f"transform-{batch}").enqueue(batch, lines)
    return len(lines)


@hf.task(queue="etl")
def transform(batch: str, lines: list[str]) -> int:
    rows = [(int(count), fruit) for count, fruit in map(str.split, lines) if count.isdigit()]
    load.options(id=f"load-{batch}").enqueue(batch, rows)
    return len(rows)


@hf.task(queue="etl")
def load(batch: str, rows: list[tuple[int, str]]) -> int:
    with closing(sqlite3.connect("warehouse.db")) as warehouse, warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS sold (batch, count, fruit)")
        # The whole batch anew, in one transaction: a second run leaves the same rows.
        warehouse.execute("DELETE FROM sold WHERE batch = ?", [batch])
        warehouse.executemany("INSERT INTO sold VALUES (?, ?, ?)", [(batch, *row) for row in rows])
    return len(rows)


if __name__ == "__main__":
    for day in (*SOURCE, "monday"):  # monday is sent twice
        extract.options(id=f"extract-{day}").enqueue(day)
    hf.work(until_idle=True)
    with closing(sqlite3.connect("warehouse.db")) as found:
        for row in found.execute("SELECT batch, count, fruit FROM sold ORDER BY batch, fruit"):
            print(*row)
    hf.close()
