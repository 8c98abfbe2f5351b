"""Types that users really pass: they come back as what they were, from arguments and from results, or are refused."""

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

import msgspec
import pydantic
import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import InvalidArguments, InvalidValue

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(gt=0)


class Person(pydantic.BaseModel):
    name: str
    born: date
    balance: Decimal
    key: uuid.UUID
    photo: bytes = b""
    home: Address | None = None
    friends: list["Person"] = []
    mood: Literal["good", "bad"] = "good"
    colour: Colour = Colour.RED


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    at: datetime
    pair: tuple[int, str]
    tags: set[int]


class Aliased(pydantic.BaseModel):
    size: int = pydantic.Field(5, alias="theSize")


class OneWay(pydantic.BaseModel):
    size: int = pydantic.Field(5, validation_alias="theSize")


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Named(Address):
    owner: str


class Computed(pydantic.BaseModel):
    side: int

    @pydantic.computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Line:
    item: str
    price: Decimal
    ships_to: Address | None = None


@dataclasses.dataclass
class GiftLine(Line):
    card: str = "hello"


class Order(msgspec.Struct):
    lines: list[Line]
    placed: datetime
    by: Person | None = None
    notes: dict[str, list[Colour]] = {}


HOME = Address(street="Elm", number=3)
ANN = Person(
    name="Ann",
    born=date(1990, 2, 28),
    balance=Decimal("10.10"),
    key=uuid.UUID(int=7),
    photo="ä".encode(),
    home=HOME,
    friends=[Person(name="Bob", born=date(1991, 1, 1), balance=Decimal(0), key=uuid.UUID(int=8))],
    mood="bad",
    colour=Colour.BLUE,
)
AT = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
ORDER = Order([Line("pen", Decimal("1.10"), HOME), Line("ink", Decimal(2))], AT, ANN, {"a": [Colour.RED]})

KEPT: list[tuple[Any, Any]] = [
    (Person, ANN),
    (list[Person], [ANN, ANN]),
    (dict[str, Person | None], {"a": ANN, "b": None}),
    (tuple[Address, ...], (HOME, HOME)),
    (Strict, Strict(at=AT, pair=(1, "x"), tags={3, 1, 2})),
    (Aliased, Aliased(theSize=7)),
    (Computed, Computed(side=3)),
    (Page[int], Page[int](items=[1, 2])),
    (Page[Address], Page[Address](items=[HOME])),
    (Line, Line("pen", Decimal("1.10"), HOME)),
    (GiftLine, GiftLine("pen", Decimal("1.10"), None, "dear")),
    (Order, ORDER),
    (list[Order | None], [ORDER, None]),
    (dict[str, dict[str, list[set[int]]]], {"a": {"b": [{3, 1, 2}, set()]}}),
    (dict[date, Decimal], {date(2026, 1, 1): Decimal("0.30")}),
    (datetime | None, AT),
    (Literal["a", "b"] | None, "a"),
    (frozenset[Colour], frozenset({Colour.RED})),
]

LOST: list[tuple[Any, Any]] = [
    # What a subclass has more would be dropped.
    (Address, Named(street="Elm", number=3, owner="Ann")),
    (list[Address], [Named(street="Elm", number=3, owner="Ann")]),
    (Line, GiftLine("pen", Decimal(1))),
    (Order, Order([GiftLine("pen", Decimal(1))], AT)),
    # Models that do not take back what they give.
    (OneWay, OneWay(theSize=7)),
    (Login, Login(password=pydantic.SecretStr("x"))),
    (list[Login], [Login(password=pydantic.SecretStr("x"))]),
    # Text for what is no text, and the other way round.
    (bytes, "abcd"),
    (list[bytes], ["abcd"]),
    (datetime, "2026-01-01T00:00:00Z"),
    (uuid.UUID, str(uuid.UUID(int=1))),
    (str, Decimal(1)),
    (dict[str, str], {"a": date(2026, 1, 1)}),
    # A plain mapping is no model unless it says the same.
    (Address, {"street": "Elm", "number": "3"}),
    (Address, {"street": "Elm", "number": 3, "more": 1}),
    # What the annotation forbids.
    (Address, Address.model_construct(street="Elm", number=-1)),
    (Literal["a"], "b"),
    (Colour, "green"),
    (Page[int], Page[str](items=["x"])),
]


def codec_of(kind: Any) -> SignatureCodec:
    def echo(value):
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return SignatureCodec(echo)


@pytest.mark.parametrize(("kind", "value"), KEPT)
def test_a_value_comes_back_as_it_was(kind, value):
    codec = codec_of(kind)
    _, kwargs = codec.unpack(codec.pack((value,), {}))
    for back in (kwargs["value"], codec.unpack_result(codec.pack_result(value))):
        assert back == value
        assert type(back) is type(value)


@pytest.mark.parametrize(("kind", "value"), LOST)
def test_a_value_that_would_come_back_as_another_is_refused(kind, value):
    codec = codec_of(kind)
    with pytest.raises((InvalidArguments, InvalidValue)):
        codec.pack((value,), {})
    with pytest.raises(InvalidValue):
        codec.pack_result(value)


@pytest.mark.parametrize("kind", [Address | Person, Address | str, Order | Line])
def test_annotations_that_json_cannot_tell_apart_are_refused_when_the_task_is_registered(kind):
    with pytest.raises(InvalidValue, match="told apart"):
        codec_of(kind)


def test_a_fault_names_the_field_and_repeats_no_value():
    with pytest.raises(InvalidArguments, match=r"Address: number: .*greater than 0") as told:
        codec_of(Address).unpack(msgspec.Raw(b'{"value":{"street":"secret street","number":-1}}'))
    assert "secret" not in str(told.value)


def test_typed_values_travel_through_a_worker_and_back(tmp_path):
    seen = []
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:

        @hf.task
        def ship(
            order: Order, *to: Address, at: datetime | None = None, raw: bytes = b"", **more: Colour
        ) -> list[Line]:
            seen.append((order, to, at, raw, more))
            return order.lines

        @hf.task
        async def greet(person: Person) -> Person:
            return person.model_copy(update={"name": "Eve"})

        first = ship.enqueue(ORDER, HOME, HOME, at=datetime(2026, 1, 1, tzinfo=UTC), raw=b"\0\xff", x=Colour.RED)
        second = greet.enqueue(ANN)
        hf.work(until_idle=True)
        assert first.result(timeout=0) == ORDER.lines
        assert second.result(timeout=0) == ANN.model_copy(update={"name": "Eve"})
        assert seen == [(ORDER, (HOME, HOME), datetime(2026, 1, 1, tzinfo=UTC), b"\0\xff", {"x": Colour.RED})]


def test_wrong_values_store_nothing(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:

        @hf.task
        def ship(order: Order, *to: Address, **more: Colour) -> None:
            return None

        for args, kwargs in [
            ((ANN,), {}),
            ((ORDER, ANN), {}),
            ((ORDER,), {"x": "green"}),
            ((), {"order": ORDER, "to": HOME}),
        ]:
            with pytest.raises((InvalidArguments, InvalidValue)):
                ship.enqueue(*args, **kwargs)
        for wrong in [(ANN,), (ORDER, ANN), {"order": ORDER, "x": 3}, {}]:
            with pytest.raises((InvalidArguments, InvalidValue)):
                ship.enqueue_many([(ORDER,), wrong])
        assert hf.jobs() == []


def test_a_result_that_does_not_fit_fails_its_run_and_says_so():
    with Holdfast("memory:") as hf:

        @hf.task(max_attempts=1)
        def wrong() -> Address:
            return Named(street="Elm", number=3, owner="Ann")

        job = wrong.enqueue()
        hf.work(until_idle=True)
        (run,) = job.runs()
        assert (job.status, run.error_kind) == ("FAILED", "bad_result")
        assert "would not come back" in run.error
