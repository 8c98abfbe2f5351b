"""A program that reserves a queue or runs a job directly, and does not end as it should. Run as a script: verb, url."""

from __future__ import annotations

import os
import sys

from holdfast import Holdfast
from holdfast.failpoints import listening


def say(*words: object) -> None:
    print(*words, flush=True)


def waits(url: str) -> None:
    """Wait for the job that runs on the queue."""
    hf = Holdfast(url)
    with listening("reservation.waiting", lambda: say("waiting")):
        hf.task(queue="mail", name="idle")(lambda: None).direct()


def works(url: str) -> None:
    """Work until told to stop."""
    hf = Holdfast(url)

    @hf.task(queue="mail", name="work")
    def work() -> None:
        say("working", hf.current.job_id)
        sys.stdin.readline()

    work.direct()


def forgets(url: str) -> None:
    """Reserve, and never leave the block."""
    hf = Holdfast(url)
    held = hf.reserve("mail", by="a forgetful program")
    held.__enter__()
    say("reserved", held.reservation_id)
    how = sys.stdin.readline().strip()
    if how == "vanish":
        os._exit(1)
    if how == "raise":
        raise RuntimeError("on purpose")


if __name__ == "__main__":
    {"waits": waits, "works": works, "forgets": forgets}[sys.argv[1]](sys.argv[2])
