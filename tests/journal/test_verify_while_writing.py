"""Verifying a journal that is being written to: what is not durable yet is no damage."""

from holdfast.journal import Journal, segments
from holdfast.journal.tail import Tail
from holdfast.testing.clock import START


def test_a_segment_begun_while_verifying_is_no_torn_tail(tmp_path, monkeypatch):
    journal = Journal.open(tmp_path / "j")
    journal.append([b'{"type":"t:put","n":1}'], ts=START, v=1).wait()
    find = segments.find

    def find_after_a_roll(fs):
        journal._commit.exclusively(Tail.roll)
        return find(fs)

    monkeypatch.setattr(segments, "find", find_after_a_roll)
    assert journal.verify() == []
    journal.append([b'{"type":"t:put","n":2}'], ts=START, v=1).wait()
    assert journal.verify() == []
    journal.close()
