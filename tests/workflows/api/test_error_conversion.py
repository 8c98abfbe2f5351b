"""Exceptions as data and back: what is kept, what is cut, and what comes out again."""

import asyncio
import builtins

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.errors import ActivityError, ChildError, StepError, WorkFailed, WorkflowFailed, class_name
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
    assert details_of(ValueError(object())).repr.startswith("ValueError(<object object at")
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


class Unreprable:
    def __repr__(self):
        raise SystemExit("no repr")


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


class Fixed(Exception):
    def __setattr__(self, name, value):
        raise AttributeError("nothing can be set")


@pytest.mark.parametrize("kind", [Answered, Fixed])
def test_class_that_does_not_take_what_is_said_of_it_comes_back_as_both(kind):
    again = rebuild(ActivityError, "activity 'a'", details_of(kind("x")), (kind,))
    assert isinstance(again, kind)
    assert isinstance(again, ActivityError)
    assert again.is_a(kind)
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


def test_exception_that_cannot_be_made_again_comes_back_as_its_class_with_message_and_repr():
    again = rebuild(ActivityError, "activity 'a'", details_of(Odd(1, 2)), (Odd,))
    assert isinstance(again, Odd)
    assert isinstance(again, ActivityError)
    assert again.args == ("another text",)
    assert again.repr_text == "Odd('another text')"
    assert "another text" in str(again)


#: Exceptions that mean something else than a failure: they come back as ours alone.
APART = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration)
BUILTIN = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
#: Arguments for classes that take no others.
ARGUMENTS = {
    UnicodeDecodeError: [("utf-8", b"a\xff", 1, 2, "bad byte")],
    UnicodeEncodeError: [("ascii", "a\xe4", 1, 2, "bad"), ("utf-8", "\ud800", 0, 1, "surrogate")],
    UnicodeTranslateError: [("a\xe4", 1, 2, "bad"), ("\ud800", 0, 1, "surrogate")],
    BaseExceptionGroup: [("two", [ValueError(1), SystemExit(2)]), ("one", [KeyError({1})])],
    ExceptionGroup: [("two", [ValueError(object()), ExceptionGroup("in", [KeyError("k")])])],
}
ANY_ARGUMENTS = [
    (),
    ("bad row", object()),
    ({1},),
    (b"\xff",),
    ((1, 2), 3),
    (2, "gone", "x", None, object()),
    ("\ud800",),
    (2**70,),
    ("x" * (MAX_MESSAGE + 1),),
    ([float("nan")],),
    tuple(range(100)),
    (Nameless("x"),),
    (Unreprable(),),
]


def made(kind, arguments):
    try:
        return kind(*arguments)
    except TypeError:  # SyntaxError, for one, wants its place as it is
        return None


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.__name__)
def test_builtin_exception_comes_back_as_its_class_whatever_its_arguments(kind):
    problems = [made(kind, arguments) for arguments in ARGUMENTS.get(kind, ANY_ARGUMENTS)]
    problems = [problem for problem in problems if problem is not None]
    assert problems
    for problem in problems:
        demand_same_class(problem)


def demand_same_class(problem, *known):
    details = details_of(problem)
    assert msgspec.json.decode(msgspec.json.encode(details), type=ErrorDetails) == details
    assert len(msgspec.json.encode(details)) < 1 << 20
    for ours in (ActivityError, StepError, ChildError, WorkflowFailed):
        again = rebuild(ours, "it", details, known)
        assert isinstance(again, ours)
        for base in type(problem).__mro__:
            assert again.is_a(base) or base is object or not base.__qualname__.isascii()
            if base.__module__ == "builtins" or base in known:
                assert isinstance(again, base) or issubclass(base, APART)
        assert details.message in str(again)
        assert again.repr_text
        assert repr(again)
        assert again.details == details
        demand_survives_another_passage(again, problem, known)


def demand_survives_another_passage(again, problem, known):
    outer = rebuild(ChildError, "child", details_of(again), known)
    for base in type(problem).__mro__:
        if base in known or (base.__module__ == "builtins" and not issubclass(base, APART)):
            assert isinstance(outer, base)


def test_arguments_that_are_json_are_kept_beside_those_that_are_not():
    again = rebuild(StepError, "step 's'", details_of(ValueError("bad row", {1}, 3)))
    assert again.args == ("bad row", "{1}", 3)
    assert again.repr_text == "ValueError('bad row', {1}, 3)"


def test_unicode_error_keeps_what_it_says():
    again = rebuild(StepError, "step 's'", details_of(UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "bad byte")))
    assert (again.encoding, again.start, again.end, again.reason) == ("utf-8", 1, 2, "bad byte")


def test_group_comes_back_with_members_that_except_star_tells_apart():
    group = ExceptionGroup(
        "two", [ValueError("a", object()), ExceptionGroup("in", [KeyError("b"), OSError(2, "gone")])]
    )
    again = rebuild(StepError, "step 's'", details_of(group))
    seen = []
    try:
        raise again
    except* ValueError as values:
        seen.append([member.message for member in values.exceptions])
    except* LookupError as lookups:
        seen.append([member.message for member in lookups.exceptions[0].exceptions])
    except* OSError as systems:
        seen.append([member.errno for member in systems.exceptions[0].exceptions])
    assert seen == [[str(group.exceptions[0])], ["'b'"], [2]]


class Refund(Exception):
    """Listed by the user."""


class CodeOnly(Refund):
    def __init__(self, *, code):
        super().__init__()
        self.code = code


class Strict(Exception):
    def __new__(cls, *args):
        if args != (1, 2):
            raise RuntimeError("only (1, 2)")
        return super().__new__(cls)

    def __init__(self, one, two):
        super().__init__(one)


class Exiting(Exception):
    made = 0

    def __init__(self, *args):
        Exiting.made += 1
        if Exiting.made > 1:
            raise SystemExit


class Closed(Exception):
    def __init_subclass__(cls, *, code):
        raise TypeError("no subclass without a code")


class Meta(type):
    def __new__(cls, name, bases, namespace):
        if bases and bases[0] is not Exception:
            raise TypeError("no more classes")
        return super().__new__(cls, name, bases, namespace)


class Only(Exception, metaclass=Meta):
    pass


class Slotted(OSError):
    __slots__ = ("a",)


class Own(StepError):
    pass


class Grouped(ExceptionGroup):
    def __new__(cls, errors):
        return super().__new__(cls, "grouped", errors)


class Both(KeyError, Refund):
    pass


USERS = {
    "keyword only": lambda: CodeOnly(code=3),
    "two in, one kept": lambda: Odd(1, 2),
    "strict": lambda: Strict(1, 2),
    "exits": lambda: Exiting("x"),
    "no subclasses": lambda: Closed("x"),
    "metaclass": lambda: Only("x"),
    "slots": lambda: Slotted(2, "gone"),
    "one of ours": lambda: Own("x"),
    "group": lambda: Grouped([ValueError(object())]),
    "two bases": lambda: Both({1}),
    "named": lambda: Answered(object()),
    "fixed": lambda: Fixed("x"),
    "no text": lambda: Nameless("x"),
    "no arguments": lambda: Argless("x"),
    "no face": lambda: Faceless("x"),
    "no name": lambda: Unwritable("x"),
    "no repr": lambda: Refund(Unreprable()),
}


@pytest.mark.parametrize("name", USERS)
def test_listed_exception_comes_back_as_its_class_however_it_is_made(name):
    Exiting.made = 0
    problem = USERS[name]()
    demand_same_class(problem, type(problem))


@pytest.mark.parametrize("name", USERS)
def test_exception_that_is_not_listed_comes_back_as_those_of_its_bases_that_are(name):
    Exiting.made = 0
    demand_same_class(USERS[name](), Refund)


def test_rebuilt_classes_are_not_found_by_their_code():
    before = dict(errors.BY_CODE)
    rebuild(ActivityError, "activity 'a'", details_of(Refund("x")), (Refund,))
    assert before == errors.BY_CODE


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(st.sampled_from([kind for kind in BUILTIN if kind not in ARGUMENTS]), st.lists(VALUES, max_size=6))
def test_any_arguments_of_any_builtin_exception(kind, arguments):
    problem = made(kind, arguments)
    if problem is not None:
        demand_same_class(problem)


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
