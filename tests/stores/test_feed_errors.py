"""A feed whose first events are gone says where it begins."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.times import Timestamp
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock

NEVER = Timestamp("9999-01-01T00:00:00.000000Z")


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "wal", "dir"])
def test_the_hint_names_the_number_to_begin_with(tmp_path, scheme):
    clock = ManualClock()
    engine = Engine(open_store("memory:" if scheme == "memory" else f"{scheme}:{tmp_path / 'jobs'}", clock=clock))
    for number in range(60):
        engine.ask(Enqueue(jobs=(NewJob(job_id=f"j{number}", job_type="t", params=msgspec.Raw(b"{}")),)))
        if number % 10 == 0:
            engine.store.snapshot()
    engine.store.trim(NEVER, 20)
    with pytest.raises(InvalidValue) as told:
        list(engine.store.feed(0))
    begins = int(told.value.facts["trimmed"])
    assert told.value.hint == f"after={begins} begins with the first event that is kept."
    assert 0 < begins < 60
    kept = [entry.seq for entry in engine.store.feed(begins)]
    assert kept[0] == begins + 1
    with pytest.raises(InvalidValue):
        list(engine.store.feed(begins - 1))
    engine.close()
