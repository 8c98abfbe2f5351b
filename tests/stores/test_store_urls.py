"""A store's URL is its only configuration: what is accepted, what is refused, and that nothing is made by mistake."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.errors import InvalidValue
from holdfast.stores.opening import open_store, parse_url


@pytest.mark.parametrize(
    ("url", "scheme", "path"),
    [
        ("memory:", "memory", ""),
        ("http://127.0.0.1:8480", "http", "//127.0.0.1:8480"),
        ("https://jobs.example/below", "https", "//jobs.example/below"),
        ("wal:jobs", "wal", "jobs"),
        ("dir:jobs", "dir", "jobs"),
        ("dir:/srv/jobs?network=allow", "dir", "/srv/jobs"),
        ("sqlite:/var/lib/a:b.db", "sqlite", "/var/lib/a:b.db"),
        ("sqlite:jobs.db?network=allow", "sqlite", "jobs.db"),
        ("wal:jobs?durability=relaxed", "wal", "jobs"),
    ],
)
def test_a_url_names_one_store(url, scheme, path):
    where = parse_url(url)
    assert (where.scheme, where.path) == (scheme, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs.db",
        "redis://x",
        "http:",
        "http://",
        "http:jobs",
        "http://user:word@host",
        "http://host?fast=1",
        "sqlite:",
        "memory:x",
        "wal:a?network=maybe",
        "wal:a?fast=1",
        "dir:",
        "dir:a?durability=relaxed",
        "sqlite:a\0b",
        "sqlite:a\ud800b",
        "wal:a\ud800b",
        None,
        b"wal:a",
        "sqlite:a?durability=relaxed",
        "memory:?network=allow",
    ],
)
def test_what_is_no_url_of_ours_is_refused_before_anything_is_made(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["dir", "wal", "sqlite"])
def test_opening_twice_gives_what_the_first_one_kept(scheme, tmp_path):
    url = f"{scheme}:{tmp_path / 'jobs'}"
    for _ in range(2):
        store = holdfast.open_store(url)
        assert store.promises.name == scheme
        store.close()


def test_the_public_names_are_few_and_all_there():
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
    with pytest.raises(AttributeError):
        holdfast.nothing  # noqa: B018 - asking is the test
