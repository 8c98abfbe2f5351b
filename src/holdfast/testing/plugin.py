"""The pytest plugin: fixtures for applications that use Holdfast. Each test has its own store, also in parallel.

Loaded by every pytest run of whoever has Holdfast installed: nothing of ours is imported before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.app.application import Holdfast
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.killing import Crash
    from holdfast.testing.worlds import VirtualWorld


@pytest.fixture
def holdfast_clock() -> ManualClock:
    """Give a clock that stands at 2026-01-01 until the test moves it."""
    from holdfast.testing.clock import ManualClock  # noqa: PLC0415 - only tests that ask pay for it

    return ManualClock()


@pytest.fixture
def holdfast_app(holdfast_clock: ManualClock) -> Iterator[Holdfast]:
    """Give an application on a fresh `memory:` store, whose clock is `holdfast_clock`."""
    from holdfast.app.application import Holdfast  # noqa: PLC0415 - the same

    with Holdfast("memory:", clock=holdfast_clock, guard_workflows=True) as app:
        yield app


@pytest.fixture
def holdfast_crash(tmp_path: Path, holdfast_clock: ManualClock) -> Iterator[Crash]:
    """Give a SQLite file of this test, an application on it, and workers that die where the test says."""
    from holdfast.testing.killing import Crash  # noqa: PLC0415 - the same

    crash = Crash(tmp_path, holdfast_clock)
    yield crash
    crash.close()


@pytest.fixture
def holdfast_world(holdfast_app: Holdfast) -> Iterator[VirtualWorld]:
    """Give a world of its own around `holdfast_app`, whose clock jumps to what is due next."""
    from holdfast.testing.worlds import virtual  # noqa: PLC0415 - the same

    with virtual(holdfast_app) as world:
        yield world
