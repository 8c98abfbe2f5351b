"""Artifacts as the record of a run names them."""

from hashlib import sha256

import msgspec
import pytest

from holdfast.model.artifacts import Artifact, copies_in


def test_copied_artifacts_name_their_blobs_and_others_do_not():
    first, second, third = (sha256(text).hexdigest() for text in (b"1", b"2", b"3"))
    listed = [
        Artifact("a.txt", 3, first, "text/plain"),
        Artifact("large.bin", 1 << 30, second, "application/octet-stream", "/data/large.bin"),
        Artifact("b.txt", 4, third, "text/plain"),
    ]
    assert copies_in(msgspec.json.encode(listed)) == {first, third}


@pytest.mark.parametrize("text", [b"null", b"[]", b'{"a":1}', b'[{"name":"a"}]', b'["a"]'])
def test_a_list_of_another_form_names_none(text):
    assert copies_in(text) == set()
