"""Another process that reserves one queue of a `sqlite:` store, for races. Run as a script: path, name.

For each line it is given: `reserve ID` answers `won ID` or `lost HOLDER`; `release ID` answers `released ID`.
"""

from __future__ import annotations

import sys

from holdfast.engine import Engine
from holdfast.errors import ReservationConflict
from holdfast.model.commands import ReleaseReservation, Reserve
from holdfast.model.outcomes import Refusal
from holdfast.stores.sqlite import SqliteStore


def main(path: str, name: str) -> None:
    engine = Engine(SqliteStore.open(path))
    print("open", flush=True)
    for line in sys.stdin:
        verb, reservation_id = line.split()
        if verb == "release":
            engine.ask(ReleaseReservation(reservation_id=reservation_id))
            print("released", reservation_id, flush=True)
            continue
        outcome = engine.submit(
            Reserve(reservation_id=reservation_id, queue="q", reserved_by=name, session_id=engine.session_id)
        )
        if isinstance(outcome, Refusal):
            assert outcome.code == ReservationConflict.code, outcome
            print("lost", outcome.facts["reservation_id"], flush=True)
        else:
            print("won", reservation_id, flush=True)
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
