"""Which blobs records name: counted from the first question on, and right through every change and its undoing."""

from hashlib import sha256

import msgspec

from holdfast.model.artifacts import Artifact
from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import blob_ref
from holdfast.model.records import Queue
from holdfast.stores.memory.tables import Tables
from holdfast.stores.sidecar.blob_refs import named_by

NOW = "2026-01-01T00:00:00.000000Z"
ONE, TWO, THREE, FOUR = (sha256(text).hexdigest() for text in (b"1", b"2", b"3", b"4"))


def ref(digest: str) -> msgspec.Raw:
    return blob_ref(digest, 70_000)


def test_every_field_that_may_hold_a_reference_is_looked_at():
    assert named_by(Job("j", "t", ref(ONE), NOW, result=ref(TWO))) == {ONE, TWO}
    listed = [Artifact("a", 1, THREE, "text/plain"), Artifact("b", 1, TWO, "text/plain", "/elsewhere")]
    run = Run("r", "j", 1, NOW, ref(ONE), details=ref(FOUR), artifacts=msgspec.Raw(msgspec.json.encode(listed)))
    assert named_by(run) == {ONE, THREE, FOUR}
    assert named_by(Job("j", "t", msgspec.Raw(b'{"a":1}'), NOW)) == named_by(Queue("", "q")) == named_by(None) == set()


def test_names_follow_every_change_from_the_first_question_on():
    tables = Tables()
    first, second = Job("a", "t", ref(ONE), NOW), Job("b", "t", ref(ONE), NOW)
    tables.put(Job, "a", first)
    assert (tables.names(ONE), tables.names(TWO)) == (True, False)
    tables.put(Job, "b", second)
    tables.put(Job, "a", None)
    assert tables.names(ONE)
    changed = msgspec.structs.replace(second, params=ref(TWO))
    before = tables.put(Job, "b", changed)
    assert (tables.names(ONE), tables.names(TWO), list(tables.named())) == (False, True, [TWO])
    tables.put(Job, "b", before)
    assert (tables.names(ONE), tables.names(TWO), list(tables.named())) == (True, False, [ONE])
