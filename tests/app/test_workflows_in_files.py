"""A workflow on `dir:` lives in files: closed in its middle and opened again, it goes on where it stood."""

import asyncio
import json
from contextlib import contextmanager

from holdfast import Holdfast

LONG = 30


def application(url, ran):
    hf = Holdfast(url)

    @hf.task(name="charge", queue="money")
    def charge(amount: int) -> str:
        ran.append("charge")
        return f"charged {amount}"

    def price(n: int) -> int:
        ran.append("step")
        return n * 10

    @hf.workflow(name="order")
    async def order(n: int) -> list[str]:
        amount = await hf.step(price, n)
        hf.kv.set("amount", amount)
        await asyncio.sleep(0.001)
        receipt = await charge.call(amount)
        hf.set_status("waiting")
        paid = await hf.signal("paid", type=str)
        child = await greeting.call("you")
        return [receipt, paid, child]

    @hf.workflow(name="greeting")
    async def greeting(who: str) -> str:
        return f"hello {who}"

    hf.order = order
    return hf


@contextmanager
def working(hf):
    worker = hf.worker(queues=["money", "default"])
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        assert worker.join(LONG)


def test_steps_activities_timers_signals_and_children_survive_closing(tmp_path):
    url, ran = f"dir:{tmp_path / 'store'}", []
    with application(url, ran) as hf:
        run = hf.order.start(7, id="orders/7")
        with working(hf):
            assert run.wait_status(timeout=LONG).custom_status == "waiting"
    folder = tmp_path / "store/data/instances/orders%2f7"
    history = (folder / "executions/1/history.jsonl").read_text().splitlines()
    assert json.loads((folder / "kv.json").read_text())["keys"].keys() == {"amount"}
    with application(url, ran) as hf:
        run = hf.instance("orders/7")
        run.signal("paid", "in cash")
        with working(hf):
            assert run.result(timeout=LONG) == ["charged 70", "in cash", "hello you"]
        assert ran == ["step", "charge"]
        assert hf.engine.store.check() == []
    lines = (folder / "executions/1/history.jsonl").read_text().splitlines()
    assert lines[: len(history)] == history
    assert [json.loads(line)["id"] for line in lines] == list(range(1, len(lines) + 1))
