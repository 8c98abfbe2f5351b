"""`holdfast access`: a token is shown once; lists are tables for people and records for programs."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli.commands.access import access
from holdfast.errors import InvalidValue
from holdfast.model.access import Role
from holdfast.model.times import FIRST, Timestamp, seconds_between
from holdfast.stores import access_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "access.json"


@pytest.fixture
def run(path):
    def invoke(*words):
        return CliRunner().invoke(access, [*words, "--access", str(path)])

    return invoke


def test_a_token_is_shown_once_and_never_listed(run, path):
    token = run("add", "--name", "ci", "--role", "client", "--role", "reader").output.strip()
    (kept,) = access_file.read(path)
    assert (kept.roles, kept.digest) == ((Role.CLIENT, Role.READER), hashlib.sha256(token.encode()).hexdigest())
    for form in ("table", "json", "jsonl", "ids"):
        listed = run("ls", "-o", form).output
        assert "ci" in listed
        assert token not in listed
        assert kept.digest not in listed
    run("revoke", "ci")
    assert run("ls", "-o", "json").output == "[]\n"


def test_the_list_has_a_head_and_a_line_for_each(run):
    run("add", "--name", "ci", "--role", "client", "--role", "reader")
    run("add", "--name", "shop", "--role", "admin", "--namespace", "shop", "--namespace", "", "--expires", "30d")
    head, ci, shop = (line.split() for line in run("ls").output.splitlines())
    assert head == ["NAME", "ROLES", "NAMESPACES", "MADE", "EXPIRES"]
    assert (ci[:3], ci[4]) == (["ci", "client,reader", "all"], "never")
    assert shop[:3] == ["shop", "admin", "shop,''"]
    assert seconds_between(shop[3], shop[4]) == 30 * 86_400


def test_programs_get_every_field_but_the_hash(run):
    run("add", "--name", "ci", "--role", "client")
    run("add", "--name", "shop", "--role", "admin", "--namespace", "shop", "--expires", "2999-01-06T11:15:30+01:00")
    ci, shop = msgspec.json.decode(run("ls", "-o", "json").output)
    assert list(ci) == ["name", "roles", "namespaces", "created_at", "expires_at"]
    assert (ci["roles"], ci["namespaces"], ci["expires_at"]) == (["client"], None, None)
    assert (shop["namespaces"], shop["expires_at"]) == (["shop"], "2999-01-06T10:15:30.000000Z")
    assert run("ls", "-o", "ids").output.split() == ["ci", "shop"]


def test_one_that_has_ended_is_listed_as_such(run, path):
    access_file.add(path, "old", (Role.CLIENT,), None, FIRST, expires_at=Timestamp("2001-01-01T00:00:00.000000Z"))
    assert run("ls").output.rstrip().endswith("2001-01-01T00:00:00.000000Z (over)")


@pytest.mark.parametrize("when", ["soon", "2020-01-06T10:15:30Z", "0d", "-1d"])
def test_an_end_that_is_none_or_has_passed_is_refused(run, path, when):
    refused = run("add", "--name", "late", "--role", "client", f"--expires={when}")
    assert isinstance(refused.exception, InvalidValue)
    assert access_file.read(path) == []
