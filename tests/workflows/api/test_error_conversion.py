"""Exceptions as data and back: what is kept, what is cut, and what comes out again."""

import asyncio

import msgspec
import pytest

from holdfast.errors import ActivityError, ChildError, StepError, WorkFailed, class_name
from holdfast.model.error_details import ErrorDetails
from holdfast.workflows.api.error_conversion import MAX_MESSAGE, MAX_TRACEBACK, details_of, encoding_details, rebuild


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__("another text")
        self.first = first


class Nameless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Interrupting(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def caught(raising):
    try:
        raising()
    except BaseException as problem:  # noqa: BLE001 - whichever it is
        return problem
    raise AssertionError("it did not raise")


def test_class_bases_message_arguments_and_traceback_are_kept():
    details = details_of(caught(lambda: {}["key"]))
    assert details.type_name == "KeyError"
    assert details.type_bases == ("LookupError", "Exception", "BaseException")
    assert details.message == "'key'"
    assert details.args == '["key"]'
    assert "test_error_conversion.py" in details.traceback


def fail():
    raise ValueError("inner")


def test_causes_are_kept_and_what_was_suppressed_is_not():
    def chain():
        try:
            fail()
        except ValueError as inner:
            raise KeyError("outer") from inner

    def implicit():
        try:
            fail()
        except ValueError:
            raise KeyError("outer")  # noqa: B904 - implicit, on purpose

    def hidden():
        try:
            fail()
        except ValueError:
            raise KeyError("outer") from None

    assert details_of(caught(chain)).cause.type_name == "ValueError"
    assert details_of(caught(implicit)).cause.type_name == "ValueError"
    assert details_of(caught(hidden)).cause is None


def test_an_endless_chain_is_cut():
    problem = None
    for n in range(50):
        new = ValueError(n)
        new.__cause__, problem = problem, new
    depth, details = 0, details_of(problem)
    while details.cause is not None:
        depth, details = depth + 1, details.cause
    assert depth == 8


def members_of(details):
    """Give the members of an exception group as they are kept; none for any other failure."""
    kept = dict[str, list[ErrorDetails]]
    return [] if details.data is None else msgspec.json.decode(details.data, type=kept)["members"]


def test_members_of_groups_are_kept():
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [KeyError("b")])])
    details = details_of(group)
    first, second = members_of(details)
    assert first.type_name == "ValueError"
    assert members_of(second)[0].type_name == "KeyError"
    assert members_of(first) == []
    assert isinstance(rebuild(StepError, "step 'x'", details), StepError)


def test_what_is_kept_of_groups_within_groups_is_bounded_and_its_first_members_keep_their_traceback():
    leaf = ValueError('"quoted"\n')
    group = ExceptionGroup("g", [leaf, leaf])
    for _ in range(9):
        group = ExceptionGroup("g", [group, group])
    details = details_of(group)
    assert len(msgspec.json.encode(details)) < 1 << 20
    assert len(msgspec.json.encode(details_of(ExceptionGroup("g", [ExceptionGroup("h", [leaf] * 99)] * 99)))) < 1 << 20
    assert members_of(members_of(details)[0])[0].type_name == "ExceptionGroup"
    assert "quoted" in members_of(details_of(ExceptionGroup("g", [leaf])))[0].traceback


def test_long_texts_are_cut_and_marked():
    details = details_of(ValueError("é" * 100_000))
    assert len(details.message.encode()) <= MAX_MESSAGE
    assert "bytes cut" in details.message
    assert len(details.traceback.encode()) <= MAX_TRACEBACK


def test_odd_exceptions_do_no_harm():
    assert "cannot be made" in details_of(Nameless()).message
    assert details_of(ValueError("\ud800")).message == "\\ud800"
    assert details_of(ValueError(object())).args is None
    assert "cannot be made" in details_of(Interrupting()).message
    assert "cannot be made" in encoding_details("the result", Nameless()).message


class Argless(Exception):
    args = property(lambda _: 1 / 0)


class Causeless(Exception):
    __cause__ = __context__ = __suppress_context__ = property(lambda _: 1 / 0)


class Faceless(Exception):
    __class__ = property(lambda _: 1 / 0)


class Unnamed(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


class Bent(Exception, metaclass=Unnamed):
    pass


class Unwritable(Exception):
    __qualname__ = "\ud800"


class Shouting(str):
    __slots__ = ()

    def encode(self, *_):
        raise RuntimeError("no bytes")


class Loud(Exception):
    def __str__(self):
        return Shouting("loud")


class Empty(ExceptionGroup):
    exceptions = property(lambda _: 1 / 0)


def misprinted():
    problem = SyntaxError("m")
    problem.text, problem.lineno, problem.filename = 5, 1, "x"
    return problem


ODD = {
    "text": lambda: Nameless("x"),
    "interrupt": lambda: Interrupting("x"),
    "arguments": lambda: Argless("x"),
    "cause": lambda: Causeless("x"),
    "face": lambda: Faceless("x"),
    "class": lambda: Bent("x"),
    "name": lambda: Unwritable("x"),
    "str": Loud,
    "members": lambda: Empty("g", [ValueError(1)]),
    "place": misprinted,
}


def raise_it(problem):
    raise problem


@pytest.mark.parametrize("odd", ODD)
def test_whatever_an_exception_refuses_to_say_it_is_described_by_what_it_does_say(odd):
    raised = caught(lambda: raise_it(ODD[odd]()))
    for details in (details_of(raised), details_of(ExceptionGroup("g", [raised])), details_of(wrapped(raised))):
        assert msgspec.json.decode(msgspec.json.encode(details), type=ErrorDetails) == details
    details = details_of(raised)
    assert details.type_name
    assert details.message
    assert "in raise_it" in details.traceback
    assert details_of(wrapped(raised)).cause.type_name == details.type_name
    assert encoding_details("the result", raised).message
    assert isinstance(rebuild(StepError, "step 's'", details), StepError)


def wrapped(problem):
    outer = ValueError("outer")
    outer.__cause__ = problem
    return outer


def test_the_cause_is_the_one_that_the_interpreter_keeps_whatever_the_class_says():
    problem = Causeless("x")
    BaseException.__cause__.__set__(problem, KeyError("why"))
    assert details_of(problem).cause.type_name == "KeyError"


class Answered(Exception):
    @property
    def message(self):
        return "its own"


def test_a_class_that_does_not_take_what_we_say_of_it_comes_back_as_ours():
    again = rebuild(ActivityError, "activity 'a'", details_of(Answered("x")), (Answered,))
    assert type(again) is ActivityError
    assert again.is_a(Answered)
    assert again.message.startswith("activity 'a' failed: ")


@pytest.mark.parametrize(
    "problem",
    [
        ValueError("bad", 3),
        KeyError("k"),
        OSError(2, "gone"),
        FileNotFoundError(2, "gone", "x"),
        TimeoutError(),
        ZeroDivisionError(),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_builtin_errors_come_back_as_both(problem):
    again = rebuild(ActivityError, "activity 'a'", details_of(problem))
    assert isinstance(again, type(problem))
    assert isinstance(again, ActivityError)
    assert again.is_a(type(problem))
    assert again.is_a(Exception)
    assert not again.is_a(asyncio.CancelledError)
    if isinstance(problem, OSError) and problem.errno:
        assert again.errno == 2


@pytest.mark.parametrize("problem", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration(1)])
def test_what_means_something_else_comes_back_as_ours_alone(problem):
    again = rebuild(ActivityError, "activity 'a'", details_of(problem))
    assert type(again) is ActivityError
    assert again.type_name == class_name(type(problem))


def test_a_class_that_cannot_be_rebuilt_comes_back_as_ours():
    details = details_of(Odd(1, 2))
    again = rebuild(ActivityError, "activity 'a'", details, (Odd,))
    assert type(again) is ActivityError
    assert "another text" in str(again)


def test_a_failure_that_passes_through_keeps_its_origin():
    again = rebuild(ActivityError, "activity 'a'", details_of(ValueError("bad")))
    outer = details_of(again)
    assert outer.type_name == "holdfast.errors.ActivityError"
    assert "ValueError" in outer.type_bases
    assert outer.cause.type_name == "ValueError"
    assert rebuild(ChildError, "child 'c'", outer).is_a(ValueError)


def test_what_is_kept_survives_json():
    details = details_of(caught(lambda: {}["key"]))
    assert msgspec.json.decode(msgspec.json.encode(details), type=ErrorDetails) == details


def test_all_failed_work_can_be_asked_what_it_was():
    assert WorkFailed("x").is_a(ValueError) is False
