"""An order as a workflow: reserve, charge, ship; what was done is undone if a later part fails.

    python app.py

Kill it at any time and start it again: every order goes on where it was, and nothing is charged twice.
"""

from holdfast import Holdfast
from holdfast.errors import ActivityError

hf = Holdfast("sqlite:jobs.db")


class Declined(Exception):
    """The card is refused; trying again would not help."""


@hf.task
def reserve(order: str, item: str) -> str:
    return f"{item} for {order}"


@hf.task
def release(reservation: str) -> None:
    """Give it back; doing so twice is the same as once."""


@hf.task(no_retry=(Declined,), raises=(Declined,))
def charge(order: str, cents: int) -> str:
    if cents > 10_000:
        raise Declined(order)
    # The payment service sees the same key on every attempt, and charges once.
    return f"receipt of {hf.idempotency_key()}"


@hf.workflow(version="1.0.0", raises=(Declined,))
async def order(name: str, item: str, cents: int) -> str:
    hf.set_status("reserving")
    reservation = await reserve.call(name, item)
    try:
        hf.set_status("charging")
        await charge.options(total_timeout=3600).call(name, cents)
    except Declined:
        await release.call(reservation)
        return "declined, and released"
    except ActivityError:
        await release.call(reservation)
        raise
    hf.set_status("waiting for the parcel service")
    parcel = await hf.signal("collected", type=str)
    return f"shipped as {parcel}"


if __name__ == "__main__":
    small = order.start("a-1", "lamp", 1_900, id="order-a-1")
    large = order.start("a-2", "piano", 900_000, id="order-a-2")
    hf.work(until_idle=True)
    print(small.id, small.status().custom_status)
    print(large.id, large.result())
    if small.status().status == "RUNNING":
        small.signal("collected", "parcel 7")
    hf.work(until_idle=True)
    print(small.id, small.result())
    hf.close()
