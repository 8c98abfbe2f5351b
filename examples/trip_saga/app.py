"""A trip of three bookings: if one cannot be had, those before it are undone, last first.

    python app.py

What is to be undone is a plain list in plain code; after a crash the code is run along its history, and the list is
there again.
"""

from holdfast import Holdfast
from holdfast.errors import ActivityError

hf = Holdfast("sqlite:jobs.db")


class FullyBooked(Exception):
    """Trying again would not help."""


@hf.task(no_retry=(FullyBooked,), raises=(FullyBooked,))
def book(what: str, place: str) -> str:
    if (what, place) == ("car", "Atlantis"):
        raise FullyBooked(f"no {what} in {place}")
    return f"{what} in {place}"  # a real one gives hf.idempotency_key() to whoever books


@hf.task(max_attempts=20)  # undoing must succeed in the end, and may be done twice
def cancel(booking: str) -> str:
    return f"no {booking}"


@hf.workflow
async def trip(place: str) -> list[str]:
    booked: list[str] = []
    try:
        for what in ("flight", "hotel", "car"):
            hf.set_status(f"booking a {what}")
            booked.append(await book.call(what, place))
    except ActivityError:
        hf.set_status("undoing")
        return [await cancel.call(booking) for booking in reversed(booked)]
    return booked


if __name__ == "__main__":
    runs = [trip.start(place, id=f"trip-{place}") for place in ("Lisbon", "Atlantis")]
    hf.work(until_idle=True)
    for run in runs:
        print(run.id, run.result(), "|", run.status().custom_status)
    hf.close()
