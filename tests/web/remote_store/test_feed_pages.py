"""Pages of the feed: shared by all who stream, told in small pieces, and only a few of them kept."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import InvalidValue
from holdfast.model.times import stamp
from holdfast.stores.protocol import Entry
from holdfast.testing import ManualClock
from holdfast.web.remote_store import feed_pages as pages
from holdfast.web.remote_store.feed_pages import Pages

NOW = stamp(ManualClock().now())


class Feed:
    """Events of one size each, of which the first may have been pruned; counts who walks it."""

    def __init__(self, count, size=100, pruned=0):
        self.count, self.size, self.pruned = count, size, pruned
        self.walks = []

    def __call__(self, after):
        if after < self.pruned:
            raise InvalidValue("after: gone", field="after")
        self.walks.append(after)
        return (self.entry(seq) for seq in range(after + 1, self.count + 1))

    def entry(self, seq):
        event = {"type": "job:created", "text": "x" * self.size}
        return Entry(seq, NOW, msgspec.Raw(msgspec.json.encode(event)))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pages, "SHARED_BYTES", 20_000)
    monkeypatch.setattr(pages, "PIECE_BYTES", 1_000)


def told(piece):
    return [int(line[4:]) for line in piece.text.split(b"\n") if line.startswith(b"id: ")]


def going_on(feed_pages, after):
    return feed_pages.known(after) or feed_pages.next(after)


def stream(feed_pages, until):
    """Read a stream from its beginning; give the numbers it told, and the size of its largest piece."""
    piece = feed_pages.first(0)
    seen, largest = told(piece), len(piece.text)
    while seen[-1] < until:
        piece = going_on(feed_pages, piece.last)
        seen += told(piece)
        largest = max(largest, len(piece.text))
    assert not piece.more
    return seen, largest


def test_a_stream_tells_every_event_once_in_pieces_that_are_small():
    feed = Feed(1_000)
    seen, largest = stream(Pages(feed), 1_000)
    assert seen == list(range(1, 1_001))
    assert largest < pages.PIECE_BYTES + 250


def test_a_page_is_read_once_for_all_who_stream_it():
    feed = Feed(1_000)
    mine = Pages(feed)
    stream(mine, 1_000)
    walks = len(feed.walks)
    assert walks < 1_000 // 50  # a page has more than fifty events, and a piece less than ten
    for _ in range(10):
        stream(mine, 1_000)
    assert len(feed.walks) == walks + 10  # one each, for what one begins with


def test_a_thousand_who_wait_for_one_event_read_it_once():
    feed = Feed(10)
    mine = Pages(feed)
    feed.count = 11
    assert {going_on(mine, 10) for _ in range(1_000)} == {going_on(mine, 10)}
    assert feed.walks == [10]


def test_only_a_few_pages_are_kept():
    feed = Feed(10_000)
    mine = Pages(feed)
    for after in range(0, 10_000, 500):
        mine.next(after)
        assert told(mine.known(500 if after else 0))[0] == (501 if after else 1)  # used again and again, it stays
    assert [mine.known(after) is not None for after in (0, 8_500, 9_500, 500)] == [False, True, True, True]
    assert len(mine._kept) == pages.KEPT


def test_who_begins_learns_from_the_store_what_is_gone_whatever_is_kept():
    feed = Feed(100)
    mine = Pages(feed)
    assert told(mine.next(0))[0] == 1
    feed.pruned = 50
    with pytest.raises(InvalidValue):
        mine.first(0)
    with pytest.raises(InvalidValue):
        mine.whole(0)


def test_what_comes_after_the_last_event_is_nothing_and_is_not_kept():
    mine = Pages(Feed(3))
    assert mine.next(3) == (b"", 3, False)
    assert mine.first(3) == (b"", 3, False)
    assert mine._kept == []


def test_an_event_larger_than_a_piece_is_a_piece_of_its_own():
    mine = Pages(Feed(5, size=5_000))
    assert [told(mine.next(after)) for after in range(5)] == [[1], [2], [3], [4], [5]]
    assert told(mine.first(0)) == [1]


def test_what_was_told_is_not_held():
    piece = Pages(Feed(5)).first(0)
    assert piece.text
    assert piece.told() == (b"", piece.last, piece.more)
