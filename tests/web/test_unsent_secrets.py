"""What lets somebody in is shown to nobody, also where it cannot be used."""

from __future__ import annotations

import hashlib

import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import HoldfastError, InvalidValue
from holdfast.model.access import Access, Role
from holdfast.stores.http.store import HttpStore
from holdfast.stores.opening import parse_url

SECRET = "hfa_none-of-your-business"
ACCESS = Access(name="x", roles=(Role.READER,), digest=hashlib.sha256(SECRET.encode()).hexdigest())


def test_an_access_token_is_known_with_the_end_of_its_line(monkeypatch):
    with running("memory:", accesses=[ACCESS]) as serving:
        HttpStore.open(serving.url, access_token=f"{SECRET}\n").close()
        monkeypatch.setenv("HOLDFAST_ACCESS_TOKEN", f" {SECRET}\r\n")
        HttpStore.open(serving.url).close()


@pytest.mark.parametrize("token", [f"{SECRET}\nX: y", f"{SECRET}\0", f"{SECRET}é", f"{SECRET}\udcff"])
def test_a_token_that_no_header_takes_is_refused_unsent_and_unseen(token):
    with pytest.raises(InvalidValue) as refused:
        Holdfast("http://127.0.0.1:9", access_token=token).open()
    assert SECRET not in repr(refused.value) + str(refused.value)
    assert refused.value.__cause__ is None


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(HoldfastError) as refused:
        parse_url(f"http://somebody:{SECRET}@127.0.0.1:8480")
    assert SECRET not in f"{refused.value!r} {refused.value} {refused.value.facts}"
