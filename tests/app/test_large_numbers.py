"""Numbers that no store keeps as they are: refused with their place before anything is stored."""

import pytest

from holdfast import Holdfast
from holdfast.errors import UsageError, WorkFailed

NUMBERS = {"integer": 1 << 63, "negative": -(1 << 63) - 1, "infinity": float("inf"), "overflow": 1e308 * 10}
LARGEST = {"most": (1 << 63) - 1, "least": -(1 << 63), "float": 1e308}


@pytest.fixture(params=["memory:", "sqlite:jobs.db", "wal:jobs", "dir:jobs"])
def hf(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Holdfast(request.param) as app:
        yield app


@pytest.fixture
def echo(hf):
    @hf.task(name="echo", max_attempts=1)
    def echo(x):
        return x

    return echo


@pytest.fixture
def flow(hf):
    @hf.workflow(name="flow")
    async def flow(x):
        return [x, await hf.signal("s")]

    return flow


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_number_that_cannot_be_kept_is_refused_with_its_place_and_nothing_is_stored(hf, echo, flow, number):
    value = {"a": [1, number]}
    run = flow.start(1, id="i")
    with hf.engine.read() as view:
        seq = view.seq
    calls = {
        "x.a[1]": [
            lambda: echo.enqueue(value),
            lambda: echo.options(delay=5).enqueue(value),
            lambda: flow.start(value),
            lambda: hf.template("t", echo, params={"x": value}),
            lambda: hf.schedule("s", echo, every=60, params={"x": value}),
        ],
        "data.a[1]": [lambda: run.signal("s", value)],
    }
    for place, refused in calls.items():
        for call in refused:
            with pytest.raises(UsageError) as told:
                call()
            assert f"{place}: " in str(told.value)
            assert "Nothing was stored." in str(told.value)
    with hf.engine.read() as view:
        assert view.seq == seq


@pytest.mark.parametrize("number", LARGEST.values(), ids=LARGEST)
def test_largest_numbers_come_back_exactly(hf, echo, flow, number):
    job, run = echo.enqueue({"a": number}), flow.start(number)
    run.signal("s", number)
    hf.work(until_idle=True)
    assert (job.result(timeout=5), run.result(timeout=5)) == ({"a": number}, [number, number])


def test_result_that_cannot_be_kept_is_named_with_its_place(hf):
    @hf.workflow(name="large")
    async def large():
        return {"a": [1 << 63]}

    run = large.start()
    hf.work(until_idle=True)
    with pytest.raises(WorkFailed, match=r"result\.a\[0\]: the integer 9223372036854775808 is outside the 64 bits"):
        run.result(timeout=5)
