"""Access tokens are looked at anew with every request; what cannot be read changes nothing."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from holdfast.errors import InvalidOperation, InvalidValue, Unauthorized
from holdfast.model.access import Role
from holdfast.model.times import later, moment
from holdfast.stores import access_file
from holdfast.testing.clock import ManualClock
from holdfast.web.coordinator import access_tokens as keyring_module
from holdfast.web.coordinator.access_tokens import Keyring

NOW = "2026-01-06T10:15:30.000000Z"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "access.json"


def test_what_is_made_and_revoked_counts_at_the_next_look(file):
    keyring = Keyring(file=file)
    assert keyring.all() == ()
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    found = keyring.find(token)
    assert keyring.holds(found)
    access_file.revoke(file, "ci")
    with pytest.raises(Unauthorized, match="not known"):
        keyring.find(token)
    assert not keyring.holds(found)


def test_those_who_asked_together_share_a_look_and_whoever_asks_after_it_has_another(file, monkeypatch):
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    keyring = Keyring(file=file)
    looks = []
    print_of = keyring_module._print_of
    monkeypatch.setattr(keyring_module, "_print_of", lambda path: looks.append(path) or print_of(path))

    async def ask():
        return keyring.find(token)

    async def turns():
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(ask())
        together = len(looks)
        access_file.revoke(file, "ci")
        with pytest.raises(Unauthorized, match="not known"):
            await asyncio.create_task(ask())
        return together

    assert asyncio.run(turns()) == 1


def test_a_file_that_is_gone_lets_nobody_in(file):
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    keyring = Keyring(file=file)
    file.unlink()
    with pytest.raises(Unauthorized):
        keyring.find(token)


def test_a_token_ends_at_its_time_by_the_coordinators_clock(file):
    clock = ManualClock(moment(NOW))
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW, expires_at=later(NOW, 60))
    keyring = Keyring(file=file, clock=clock)
    clock.advance(59.999)
    assert keyring.holds(keyring.find(token))
    clock.advance(0.001)
    with pytest.raises(Unauthorized, match="expired at 2026-01-06T10:16:30"):
        keyring.find(token)


def test_a_file_that_cannot_be_used_stops_the_start(file):
    access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    file.chmod(0o640)
    with pytest.raises(InvalidOperation, match="others"):
        Keyring(file=file)
    file.chmod(0o600)
    file.write_text('{"accesses": [{"name": 1}]}')
    with pytest.raises(InvalidValue):
        Keyring(file=file)
    file.unlink()
    file.mkdir()
    with pytest.raises(InvalidOperation, match=r"cannot be read.*access\.json"):
        Keyring(file=file)
    file.rmdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(InvalidOperation, match="not a file"):
        Keyring(file=file)


def pipe(file):
    file.unlink()
    os.mkfifo(file, 0o600)


def edited(**fields):
    """Write something else into the first token of a file."""

    def edit(file):
        content = json.loads(file.read_text())
        content["accesses"][0].update(fields)
        file.write_text(json.dumps(content))

    return edit


SPOILS = {
    "mode": lambda file: file.chmod(0o644),
    "cut": lambda file: file.write_text("{"),
    "deep": lambda file: file.write_text('{"accesses": [], "x": ' + "[" * 100_000),
    "pipe": pipe,
    "bytes": lambda file: file.write_bytes(file.read_bytes().replace(b'"ci"', b'"c\xff"')),
    # Whoever showed any token was answered with a fault of ours; text that is no time was one that never comes.
    "digest": edited(digest="é" * 64),
    "time": edited(expires_at="tomorrow"),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_file_that_cannot_be_used_later_changes_nothing_and_is_told_once(file, caplog, spoil):
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    keyring = Keyring(file=file)
    spoil(file)
    for _ in range(3):
        assert keyring.find(token).name == "ci"
    assert [record.message for record in caplog.records] == ["serve.access_file"]
    assert token not in caplog.text
    file.unlink()
    other = access_file.add(file, "new", (Role.CLIENT,), None, NOW)
    assert keyring.find(other).name == "new"
    with pytest.raises(Unauthorized):
        keyring.find(token)


def test_a_time_that_somebody_wrote_by_hand_is_read_as_one(file):
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    clock = ManualClock(moment(NOW))
    edited(expires_at="2026-01-06T11:15:31+01:00")(file)
    keyring = Keyring(file=file, clock=clock)
    assert keyring.find(token).expires_at == later(NOW, 1)
    clock.advance(1)
    with pytest.raises(Unauthorized, match="expired"):
        keyring.find(token)


def test_a_revocation_that_could_not_be_read_counts_as_soon_as_it_can(file, monkeypatch, caplog):
    """With too many open files for a moment, a revoked token stayed good until the file was changed again."""
    token = access_file.add(file, "ci", (Role.CLIENT,), None, NOW)
    keyring = Keyring(file=file)
    access_file.revoke(file, "ci")
    failed = InvalidOperation("too many open files")
    with monkeypatch.context() as patched:
        patched.setattr(access_file, "read", lambda _file: (_ for _ in ()).throw(failed))
        for _ in range(3):
            assert keyring.find(token).name == "ci"
    assert [record.message for record in caplog.records] == ["serve.access_file"]
    with pytest.raises(Unauthorized):
        keyring.find(token)
