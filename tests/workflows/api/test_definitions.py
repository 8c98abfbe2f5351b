"""What may be registered as a workflow, and which version is found."""

import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import InvalidValue
from holdfast.workflows.api.definitions import Definition, Definitions


async def flow(user: int) -> str:
    return str(user)


async def with_id(id: str) -> str:  # noqa: A002 - the mistake in question
    return id


def define(function=flow, **options):
    options.setdefault("name", "flow")
    return Definition(function=function, codec=SignatureCodec(function), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "no spaces"},
        {"version": "1.0"},
        {"version": "v1.0.0"},
        {"version": "01.0.0"},
        {"cancel_grace_s": -1},
        {"cancel_grace_s": 86_401},
        {"cancel_grace_s": float("nan")},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"turn_timeout_s": -1},
        {"max_turn_attempts": 0},
        {"on_nondeterminism": "ignore"},
        {"on_error": "ignore"},
        {"function": with_id},
    ],
)
def test_what_could_not_be_run_is_refused(options):
    with pytest.raises(InvalidValue):
        define(**options)


def test_the_newest_version_is_found_unless_told():
    found = Definitions(SignatureCodec)
    for version in ("1.2.0", "1.10.0", "1.9.9"):
        found.add(define(version=version))
    assert found.get("flow").version == "1.10.0"
    assert found.get("flow", "1.2.0").version == "1.2.0"
    assert found.get("flow", "3.0.0") is None
    assert found.get("other") is None
    assert [one.version for one in found.all()] == ["1.2.0", "1.9.9", "1.10.0"]


def test_the_same_version_twice_is_refused():
    found = Definitions(SignatureCodec)
    found.add(define())
    with pytest.raises(InvalidValue, match="registered already"):
        found.add(define())


def test_step_codecs_of_short_lived_functions_do_not_pile_up():
    found = Definitions(SignatureCodec)
    for _ in range(100):
        assert found.step_codec(lambda: 1) is not None
    assert found.step_codec(flow) is found.step_codec(flow)
    assert len(found._step_codecs) == 1
    assert found.step_codec(dict) is None


def test_the_code_hash_follows_the_text_and_may_be_missing():
    assert define().code_hash == define().code_hash != ""
    made = {}
    exec("async def made(): pass", made)
    assert define(function=made["made"]).code_hash == ""
