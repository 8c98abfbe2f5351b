"""Checks of single values. Each yields what is wrong with a field, and nothing if it is right."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.ids import is_id, is_name
from holdfast.model.jobs import Backoff
from holdfast.model.times import is_timestamp
from holdfast.model.workflows.instances import MAX_ID, MAX_ID_BYTES

#: The longest duration in seconds that a field takes: ten years.
MAX_DURATION_S = 10 * 366 * 86_400
#: Bytes of a text that is kept beside a job and never looked into.
MAX_TEXT = 1000

#: A field, and what is wrong with it.
Problem = tuple[str, str]


def check_queue(namespace: str, queue: str) -> Iterator[Problem]:
    """Check the name of a queue and its namespace."""
    if not is_name(queue):
        yield "queue", f"{queue!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    if namespace and not is_name(namespace):
        yield "namespace", f"{namespace!r:.80} is not a name"


def check_between(field: str, value: float, low: float, high: float) -> Iterator[Problem]:
    """Check that a number lies in a range, its ends included."""
    # `not (a <= b <= c)` is also true for NaN.
    if not low <= value <= high:
        yield field, f"{shown(value)} is not between {low} and {high}"


def check_duration(field: str, seconds: float | None) -> Iterator[Problem]:
    """Check a number of seconds."""
    if seconds is not None and not 0 <= seconds <= MAX_DURATION_S:
        yield field, f"{shown(seconds)} is not a number of seconds between 0 and ten years"


def shown(number: float) -> str:
    """Write a number for a message, unless it is so long that Python would refuse to."""
    if isinstance(number, int) and number.bit_length() > 64:
        return f"an integer of {number.bit_length()} bits"
    return repr(number)


def check_time(field: str, when: str | None) -> Iterator[Problem]:
    """Check a time."""
    if when is not None and not is_timestamp(when):
        yield field, f"{when!r:.40} is not a time such as 2026-01-06T10:15:30.000000Z"


def check_backoff(backoff: Backoff) -> Iterator[Problem]:
    """Check how long retries wait."""
    yield from check_duration("backoff.base_s", backoff.base_s)
    yield from check_duration("backoff.cap_s", backoff.cap_s)
    yield from check_between("backoff.factor", backoff.factor, 1, 1000)
    yield from check_between("backoff.jitter", backoff.jitter, 0, 1)


def check_label(field: str, text: str | None) -> Iterator[Problem]:
    """Check a text that is compared as a whole, such as a key."""
    if text is not None and not is_id(text):
        yield field, f"{text!r:.80} must have 1-200 characters, no control characters and no outer blanks"


def check_instance_id(field: str, text: str) -> Iterator[Problem]:
    """Check the id of an instance: compared exactly, so that nearly every text may be one."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        yield field, "a lone surrogate cannot be stored"
        return
    if not text or len(text) > MAX_ID or size > MAX_ID_BYTES:
        yield field, f"must have 1-{MAX_ID} characters and at most {MAX_ID_BYTES} bytes, has {len(text)}"
    elif "\0" in text:
        yield field, "must not contain U+0000"


def check_text(field: str, text: str | None, limit: int = MAX_TEXT) -> Iterator[Problem]:
    """Check a text that is kept and never looked into."""
    if text and (len(text) > limit or not text.isascii()):
        try:
            fits = len(text.encode()) <= limit
        except UnicodeEncodeError:
            fits = False
        if not fits:
            yield field, f"{text!r:.80} must be readable text of at most {limit} bytes"


def check_tags(tags: dict[str, str] | None) -> Iterator[Problem]:
    """Check the tags of a job."""
    if tags is None:
        return
    if len(tags) > 16:
        yield "tags", f"{len(tags)} pairs; a job takes 16"
    for name, text in tags.items():
        yield from check_label("tags", name)
        yield from check_label("tags", text)
