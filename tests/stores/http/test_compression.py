"""Bodies travel smaller, and come out whole or not at all."""

from __future__ import annotations

import gzip

import pytest

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.stores.http.channel import is_near
from holdfast.stores.http.compression import GZIP, ZSTD, chosen, packed, unpacked

BODY = b'{"commands":[' + b",".join(b'{"command":"enqueue"}' for _ in range(1000)) + b"]}"


@pytest.mark.parametrize("encoding", [ZSTD, GZIP])
def test_a_body_comes_out_as_it_was(encoding):
    assert len(packed(BODY, encoding)) < len(BODY) / 10
    assert unpacked(packed(BODY, encoding), encoding.upper(), len(BODY)) == BODY
    assert unpacked(packed(b"", encoding), encoding, 0) == b""


def test_what_is_not_packed_stays_as_it_is():
    assert unpacked(BODY, "", 1) == unpacked(BODY, "identity", 1) == BODY


@pytest.mark.parametrize("encoding", [ZSTD, GZIP])
def test_a_body_that_grows_beyond_its_limit_is_refused_at_the_limit(encoding):
    bomb = packed(bytes(50_000_000), encoding)
    assert len(bomb) < 100_000
    with pytest.raises(PayloadTooLarge, match="more than 8,388,608 bytes"):
        unpacked(bomb, encoding, 8 << 20)


@pytest.mark.parametrize("encoding", [ZSTD, GZIP])
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda whole: whole[:-1], id="cut short"),
        pytest.param(lambda whole: whole + b"more", id="followed by more"),
        pytest.param(lambda whole: whole + whole, id="twice"),
        pytest.param(lambda _: b"{}", id="not packed at all"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_what_is_not_one_whole_piece_is_refused(encoding, broken):
    with pytest.raises(InvalidValue):
        unpacked(broken(packed(BODY, encoding)), encoding, 8 << 20)


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "\x00"])
def test_other_encodings_are_refused_by_name(encoding):
    with pytest.raises(InvalidValue, match="not known"):
        unpacked(gzip.compress(b"x"), encoding, 10)


@pytest.mark.parametrize(
    ("accepted", "answer"),
    [
        ("", None),
        ("identity", None),
        ("gzip, deflate, zstd", ZSTD),
        ("GZIP;q=0.5", GZIP),
        ("zstd;q=0, gzip", GZIP),
        ("zstd; q=0", None),
        ("br", None),
    ],
)
def test_answers_are_packed_as_their_caller_accepts_it(accepted, answer):
    assert chosen(accepted) == answer


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:8480", True),
        ("http://localhost:1", True),
        ("http://[::1]:2", True),
        ("https://jobs.example:443", False),
        ("http://10.0.0.7:8480", False),
    ],
)
def test_within_one_machine_nothing_is_packed(url, near):
    assert is_near(url) is near
