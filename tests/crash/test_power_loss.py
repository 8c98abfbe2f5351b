"""A process dies, or the power goes, before, during or after every call that changes the disk."""

from __future__ import annotations

import os

import pytest
from stories import images, life, rehearse, run
from witness import CUTS, opened, recovered

from holdfast.errors import JournalDamaged
from holdfast.testing import SimCrash, SimFS
from holdfast.testing.simfs import CHANGES

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
pytestmark = pytest.mark.usefixtures("one_id")
SEEDS = range(100, 400 if SOAK else 103)
ALL_CUTS = CUTS + [("blocks", "mixed", seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def moments():
    """The disk before each changing call of a life, with what had been sent and answered by then."""
    return images(life)


def test_a_power_cut_before_any_call_loses_nothing_acknowledged(moments):
    faults, seen = 0, set()
    for at, (disk, witness) in enumerate(moments):
        for mode, names, seed in ALL_CUTS:
            after = disk.image().power_loss(mode, seed, names)
            try:
                witness.examine(after, fallback=True, seen=seen)
            except BaseException as error:
                error.add_note(f"cut {mode}/{names}/{seed} before change {at} of {len(moments)}")
                raise
            faults += 1
    print(f"\n{faults} power cuts at {len(moments)} places left {len(seen)} different disks")
    assert faults >= 2000
    assert len(seen) >= 800, "hardly any was examined"


def test_a_process_that_dies_at_any_call_loses_nothing_acknowledged():
    faults, seen = 0, set()
    changes = [call.kind for call in rehearse(life) if call.kind in CHANGES]
    for when in ("before", "during", "after"):
        for k, kind in enumerate(changes, 1):
            if when == "during" and kind != "write":
                continue  # only a write can be done by half
            fs = SimFS()
            fs.crash(k, when=when)
            witness = run(life, fs)
            assert fs.injected == 1
            with pytest.raises(SimCrash):
                fs.listdir("")
            witness.examine(fs.reboot(), fallback=True, seen=seen)
            witness.examine(fs.image().power_loss("blocks", k), seen=seen)
            faults += 2
    print(f"\n{faults} deaths at {len(changes)} changing calls left {len(seen)} different disks")
    assert faults >= 600
    assert len(seen) >= 600, "hardly any was examined"


def test_junk_where_bytes_were_not_synced_is_refused_or_harmless(moments):
    refusals = []
    for disk, witness in moments:
        for seed in SEEDS:
            after = disk.image().power_loss("junk", seed)
            before = after.tree()
            try:
                witness.examine(after)
            except JournalDamaged as error:
                refusals.append((error, before, after.tree()))
    assert refusals
    for error, before, after in refusals:
        assert {"file", "line", "offset"} <= set(error.facts)
        assert {**before, "LOCK": b""} == {**after, "LOCK": b""}


def test_recovery_can_be_interrupted_anywhere_and_ends_the_same(moments):
    """A crash within recovery, then a cut, then another recovery: as if it had not been interrupted."""
    faults = 0
    for at, (disk, witness) in enumerate(moments[:: 1 if SOAK else 3]):
        torn = disk.image().power_loss("blocks", at)
        expected = recovered(opened(torn.image())).order()
        steps: list[SimFS] = []
        twin = torn.image()
        twin.before = lambda call, twin=twin, steps=steps: steps.append(twin.image()) if call.kind in CHANGES else None
        opened(twin)
        for step in steps:
            for mode, names, seed in CUTS[::3]:
                assert recovered(opened(step.image().power_loss(mode, seed, names))).order() == expected
                faults += 1
            assert recovered(opened(step.reboot())).order() == expected
            faults += 1
        witness.judge(expected)
    print(f"\n{faults} crashes within recovery")
    assert faults >= 500
