"""Verifying a journal that is being written to: what is not durable yet is no damage."""

from types import SimpleNamespace

from holdfast.journal import Journal, segments
from holdfast.journal.log_tail import Tail
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


def state(journal):
    return SimpleNamespace(applied_seq=journal.durable_seq, tables={})


def test_no_checkpoint_removes_what_is_being_verified(tmp_path, monkeypatch):
    journal = Journal.open(tmp_path / "j")
    for number in range(3):
        journal.append([b'{"type":"t:put","n":1}'], ts=START, v=1).wait()
        if number < 2:
            journal.checkpoint(lambda: state(journal)).wait()
    find, begun = segments.find, []

    def find_and_checkpoint(fs):
        found = find(fs)
        if not begun:
            begun.append(journal.checkpoint(lambda: state(journal)))
            assert journal._checkpoints._shortening.locked()
        return found

    monkeypatch.setattr(segments, "find", find_and_checkpoint)
    assert journal.verify() == []
    begun[0].wait(60)
    assert journal.first_seq > 1
    assert journal.verify() == []
    journal.close()


def test_a_check_from_outside_looks_again_when_a_writer_removed_what_it_had_listed(tmp_path, monkeypatch):
    journal = Journal.open(tmp_path / "j")
    for _ in range(2):
        journal.append([b'{"type":"t:put","n":1}'], ts=START, v=1).wait()
        journal.checkpoint(lambda: state(journal)).wait()
    journal.append([b'{"type":"t:put","n":1}'], ts=START, v=1).wait()
    find, begun = segments.find, []

    def find_and_checkpoint(fs):
        found = find(fs)
        if not begun:
            begun.append(True)
            journal.checkpoint(lambda: state(journal)).wait()
        return found

    monkeypatch.setattr(segments, "find", find_and_checkpoint)
    assert Journal.check(tmp_path / "j") == []
    assert begun
    journal.close()
