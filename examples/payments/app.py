"""Payments that may run twice and are charged once: an idempotency key for the bank, a fence against late writers.

    python app.py

A job can run again when its worker died, or was only slow. `hf.current.token` rises with every lease, so whoever keeps
the highest token seen can refuse one that was overtaken.
"""

import sqlite3
from contextlib import closing

from holdfast import Backoff, Holdfast

hf = Holdfast("sqlite:jobs.db")


class Bank:
    """Stands for a payment service that knows idempotency keys, as most do."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}

    def charge(self, cents: int, idempotency_key: str) -> int:
        """Take the money, once for each key."""
        return self.charges.setdefault(idempotency_key, cents)  # a repeat gives the first answer


bank = Bank()


class Ledger:
    """Our own book. Takes a line only from the newest lease of its order."""

    def __init__(self, path: str) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as book, book:
            book.execute("CREATE TABLE IF NOT EXISTS paid (order_id PRIMARY KEY, cents, token)")

    def write(self, order_id: str, cents: int, token: int) -> bool:
        """Write a line, or leave what a newer lease has written; tell which."""
        with closing(sqlite3.connect(self.path)) as book, book:
            done = book.execute(
                "INSERT INTO paid VALUES (?, ?, ?) ON CONFLICT (order_id) DO UPDATE"
                " SET cents = excluded.cents, token = excluded.token WHERE excluded.token >= token",
                [order_id, cents, token],
            )
            return done.rowcount == 1


@hf.task(queue="payments", max_attempts=6)
def pay(order_id: str, cents: int) -> int:
    # The job's id is the same in every run; it is what makes the charge one charge.
    charged = bank.charge(cents, idempotency_key=hf.current.job_id)
    if not Ledger("ledger.db").write(order_id, charged, hf.current.token):
        raise RuntimeError("another run of this payment was given a newer lease")
    if hf.current.run_no == 1:
        raise ConnectionError("the answer was lost on the way")  # after the charge: the worst moment
    return charged


if __name__ == "__main__":
    job = pay.options(id="pay-order-7", backoff=Backoff(base_s=0.1)).enqueue("order-7", 1999)
    worker = hf.worker()
    worker.start()
    print("paid:", job.result(timeout=60), "runs:", len(job.runs()), "charges:", len(bank.charges))
    worker.drain()
    worker.join()
    print("a late writer is refused:", not Ledger("ledger.db").write("order-7", 1, token=0))
    hf.close()
