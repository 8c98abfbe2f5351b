"""Access tokens are kept as hashes, for their owner's eyes, and shown once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from holdfast.errors import InvalidOperation, InvalidValue, NotFound, Unauthorized
from holdfast.model.access import Role
from holdfast.model.times import Timestamp, seconds_between
from holdfast.web import accessfile
from holdfast.web.accesses import access
from holdfast.web.keyring import Keyring

NOW = Timestamp("2026-01-06T10:15:30.000000Z")


def test_a_token_is_known_by_its_hash_until_it_is_revoked(tmp_path):
    path = tmp_path / "state" / "access.json"
    assert accessfile.read(path) == []
    token = accessfile.add(path, "ci", (Role.CLIENT, Role.READER), None, NOW)
    other = accessfile.add(path, "ops", (Role.OPERATOR,), ("shop",), NOW)
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    keyring = Keyring(file=path)
    assert keyring.find(token).name == "ci"
    assert keyring.find(other).namespaces == ("shop",)
    with pytest.raises(Unauthorized):
        keyring.find(token + "x")
    accessfile.revoke(path, "ci")
    with pytest.raises(Unauthorized):
        keyring.find(token)
    assert [one.name for one in path.parent.iterdir()] == ["access.json"]


def test_a_file_that_others_can_read_is_not_used(tmp_path):
    path = tmp_path / "access.json"
    accessfile.add(path, "ci", (Role.CLIENT,), None, NOW)
    path.chmod(0o644)
    with pytest.raises(InvalidOperation, match="others"):
        accessfile.read(path)


def test_what_is_no_name_taken_or_absent_is_refused(tmp_path):
    path = tmp_path / "access.json"
    accessfile.add(path, "ci", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidOperation):
        accessfile.add(path, "ci", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidValue):
        accessfile.add(path, "a b", (Role.CLIENT,), None, NOW)
    with pytest.raises(InvalidValue):
        accessfile.add(path, "none", (), None, NOW)
    with pytest.raises(NotFound):
        accessfile.revoke(path, "nobody")
    path.write_text("{")
    with pytest.raises(InvalidValue):
        accessfile.read(path)


def test_the_command_line_shows_a_token_once_and_never_lists_it(tmp_path):
    path = str(tmp_path / "access.json")
    made = CliRunner().invoke(access, ["add", "--name", "ci", "--role", "client", "--role", "reader", "--access", path])
    token = made.output.strip()
    assert Keyring(file=tmp_path / "access.json").find(token).roles == (Role.CLIENT, Role.READER)
    listed = CliRunner().invoke(access, ["ls", "--access", path]).output
    assert listed.startswith("ci\tclient,reader\t*\t")
    assert token not in listed
    CliRunner().invoke(access, ["revoke", "ci", "--access", path])
    assert CliRunner().invoke(access, ["ls", "--access", path]).output == ""


def test_a_token_can_be_made_to_end_and_the_list_says_when(tmp_path):
    path = str(tmp_path / "access.json")
    asked = ["--role", "client", "--access", path]
    for name, when in (("days", "30d"), ("moment", "2999-01-06T11:15:30+01:00")):
        assert CliRunner().invoke(access, ["add", "--name", name, "--expires", when, *asked]).exit_code == 0
    rows = [line.split("\t") for line in CliRunner().invoke(access, ["ls", "--access", path]).output.splitlines()]
    days, at_once = rows
    assert seconds_between(days[3], days[4]) == 30 * 86_400
    assert at_once[4] == "2999-01-06T10:15:30.000000Z"
    for when in ("soon", "2020-01-06T10:15:30Z", "0d", "-1d"):
        refused = CliRunner().invoke(access, ["add", "--name", "late", f"--expires={when}", *asked])
        assert isinstance(refused.exception, InvalidValue), when
    assert len(accessfile.read(tmp_path / "access.json")) == 2


def test_two_who_change_the_file_at_once_lose_nothing(tmp_path):
    path = tmp_path / "access.json"
    names = [f"n{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: accessfile.add(path, name, (Role.CLIENT,), None, NOW), names))
    assert sorted(one.name for one in accessfile.read(path)) == sorted(names)
