"""Access tokens are kept as hashes, for their owner's eyes, and shown once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import InvalidOperation, InvalidValue, NotFound, Unauthorized
from holdfast.model.access import Role
from holdfast.model.times import Timestamp
from holdfast.stores import access_file
from holdfast.web.coordinator.access_tokens import Keyring

NOW = Timestamp("2026-01-06T10:15:30.000000Z")


def test_a_token_is_known_by_its_hash_until_it_is_revoked(tmp_path):
    path = tmp_path / "state" / "access.json"
    assert access_file.read(path) == []
    token = access_file.add(path, "ci", (Role.CLIENT, Role.READER), None, NOW)
    other = access_file.add(path, "ops", (Role.OPERATOR,), ("shop",), NOW)
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    keyring = Keyring(file=path)
    assert keyring.find(token).name == "ci"
    assert keyring.find(other).namespaces == ("shop",)
    with pytest.raises(Unauthorized):
        keyring.find(token + "x")
    access_file.revoke(path, "ci")
    with pytest.raises(Unauthorized):
        keyring.find(token)
    assert [one.name for one in path.parent.iterdir()] == ["access.json"]


def test_a_file_that_others_can_read_is_not_used(tmp_path):
    path = tmp_path / "access.json"
    access_file.add(path, "ci", (Role.CLIENT,), None, NOW)
    path.chmod(0o644)
    with pytest.raises(InvalidOperation, match="others"):
        access_file.read(path)


def test_what_is_no_name_taken_or_absent_is_refused(tmp_path):
    path = tmp_path / "access.json"
    access_file.add(path, "ci", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidOperation):
        access_file.add(path, "ci", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidValue):
        access_file.add(path, "a b", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidValue):
        access_file.add(path, "none", (), None, NOW)
    with pytest.raises(NotFound):
        access_file.revoke(path, "nobody")
    path.write_text("{")
    with pytest.raises(InvalidValue):
        access_file.read(path)


def test_two_who_change_the_file_at_once_lose_nothing(tmp_path):
    path = tmp_path / "access.json"
    names = [f"n{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: access_file.add(path, name, (Role.CLIENT,), None, NOW), names))
    assert sorted(one.name for one in access_file.read(path)) == sorted(names)
