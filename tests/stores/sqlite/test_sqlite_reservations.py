"""Several real processes race for one queue: each time exactly one wins, and the others are told by whom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.stores.sqlite import SqliteStore

CHILD = str(Path(__file__).with_name("reservation_child.py"))
#: Durability is judged elsewhere: where there is a disk in memory, syncs cost nothing.
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def path() -> Iterator[Path]:
    place = tempfile.mkdtemp(prefix="holdfast-reserve-", dir=FAST)
    SqliteStore.open(Path(place) / "jobs.db").close()
    yield Path(place) / "jobs.db"
    shutil.rmtree(place)


class Crowd:
    """Processes that reserve when they are told to, all at once."""

    def __init__(self, path: Path, size: int) -> None:
        self.children = [
            subprocess.Popen(
                [sys.executable, CHILD, str(path), f"p{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for number in range(size)
        ]
        for child in self.children:
            assert child.stdout.readline() == "open\n"

    def race(self, turn: int) -> tuple[int, str, list[str]]:
        """Let all of them reserve; give who won, by which id, and what each of the others was told."""
        for number, child in enumerate(self.children):
            child.stdin.write(f"reserve r{turn}-{number}\n")
        said = [child.stdout.readline().split() for child in self.children]
        winners = [number for number, (word, _) in enumerate(said) if word == "won"]
        assert len(winners) == 1, said
        (winner,) = winners
        return winner, said[winner][1], [holder for word, holder in said if word == "lost"]

    def release(self, winner: int, reservation_id: str) -> None:
        self.children[winner].stdin.write(f"release {reservation_id}\n")
        assert self.children[winner].stdout.readline() == f"released {reservation_id}\n"

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()


@pytest.mark.parametrize(("size", "rounds"), [(2, 1000), (4, 100)], ids=["two, 1000 times", "four, 100 times"])
def test_of_processes_that_reserve_at_once_exactly_one_wins_each_time(path, size, rounds):
    crowd = Crowd(path, size)
    try:
        for turn in range(rounds):
            winner, reservation_id, told = crowd.race(turn)
            assert told == [reservation_id] * (size - 1)
            crowd.release(winner, reservation_id)
    finally:
        crowd.close()
    engine = Engine(SqliteStore.open(path))
    with engine.read() as view:
        found = list(view.all(Reservation))
    assert len(found) == rounds
    assert {one.status for one in found} == {ReservationStatus.RELEASED}
    assert engine.store.check() == []
    engine.close()


def test_a_killed_holder_is_followed_by_the_next_as_soon_as_somebody_looks(path):
    crowd = Crowd(path, 2)
    engine = Engine(SqliteStore.open(path))
    try:
        winner, reservation_id, _ = crowd.race(0)
        crowd.children[winner].kill()
        crowd.children[winner].wait()
        other = crowd.children[1 - winner]
        other.stdin.write("reserve r1\n")
        assert other.stdout.readline().split() == ["lost", reservation_id]
        assert end_dead_sessions(engine) == 1
        other.stdin.write("reserve r2\n")
        assert other.stdout.readline().split() == ["won", "r2"]
        with engine.read() as view:
            assert view.get(Reservation, reservation_id).status is ReservationStatus.EXPIRED
    finally:
        crowd.close()
        engine.close()
