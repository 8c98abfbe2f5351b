"""Figures as Prometheus reads them: its text format, version 0.0.4. Knows nothing of what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from holdfast.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """All figures of one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    #: Values of the labels, in the order of their names, each with its figure.
    values: Sequence[tuple[tuple[str, ...], float | Histogram]]
    labels: tuple[str, ...] = ()


def one(name: str, kind: Literal["counter", "gauge", "histogram"], text: str, value: float | Histogram) -> Family:
    """Make a family of one figure without labels."""
    return Family(name, kind, text, [((), value)])


def exposed(families: Iterable[Family]) -> str:
    """Write figures, those of one name together."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for values, value in family.values:
        labels = list(zip(family.labels, values, strict=True))
        if isinstance(value, Histogram):
            yield from _buckets(family.name, labels, value)
        else:
            yield f"{family.name}{_braced(labels)} {_number(value)}"


def _buckets(name: str, labels: list[tuple[str, str]], histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        below += count
        yield f"{name}_bucket{_braced([*labels, ('le', _number(bound))])} {below}"
    yield f"{name}_sum{_braced(labels)} {_number(histogram.total)}"
    yield f"{name}_count{_braced(labels)} {below}"


def _braced(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
