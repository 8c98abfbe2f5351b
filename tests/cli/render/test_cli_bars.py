"""Bars, sizes and tables that fit: pure."""

from __future__ import annotations

import pytest

from holdfast.cli.render import tables
from holdfast.cli.render.bars import bar, progress_text, size_text
from holdfast.cli.render.terminal import Screen
from holdfast.model.workers import Progress

PLAIN = Screen(is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=True, width=0)


@pytest.mark.parametrize(
    ("fraction", "drawn", "ascii_"),
    [
        (0, "    ", "----"),
        (0.001, "▏   ", "#---"),
        (0.5, "██  ", "##--"),
        (0.99, "████", "####"),
        (1, "████", "####"),
        (7, "████", "####"),
        (-1, "    ", "----"),
    ],
)
def test_a_bar_is_as_long_as_asked_and_shows_anything_above_nothing(fraction, drawn, ascii_):
    assert bar(fraction, 4) == drawn
    assert bar(fraction, 4, unicode=False) == ascii_


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (Progress(), ""),
        (Progress(0.5), "[██  ]  50 %"),
        (Progress(0.999), "[████]  99 %"),
        (Progress(1.0, 1200.0, 1200.0, "done"), "[████]  100 %  1,200 of 1,200  done"),
        (Progress(None, 3.0, None, "a\nb"), "3  a\\nb"),
    ],
)
def test_progress_never_says_all_before_it_is_all(progress, shown):
    assert progress_text(progress, PLAIN, 4) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (71 << 20, "71.0 MiB"), (9 << 40, "9216.0 GiB")],
)
def test_sizes_have_one_unit(count, shown):
    assert size_text(count) == shown


COLUMNS = (
    tables.Column("ID"),
    tables.Column("HOST", spare=True),
    tables.Column("PID", spare=True),
    tables.Column("TEXT"),
)
ROWS = [["an-id-that-stays", "a-host-name", "12345", "a text that is far too long"]]


@pytest.mark.parametrize(
    ("width", "titles"),
    [(80, ["ID", "HOST", "PID", "TEXT"]), (48, ["ID", "HOST", "TEXT"]), (30, ["ID", "TEXT"]), (5, ["ID", "TEXT"])],
)
def test_columns_that_others_can_do_without_are_left_out_where_it_is_too_narrow(width, titles):
    title, line = tables.lines(COLUMNS, ROWS, PLAIN._replace(is_terminal=True, width=width))
    assert title.split() == titles
    assert line.startswith("an-id-that-stays")
    assert tables.width(line) <= max(width, 30)


def test_a_pipe_gets_every_column():
    assert tables.lines(COLUMNS, ROWS, PLAIN)[0].split() == ["ID", "HOST", "PID", "TEXT"]


@pytest.mark.parametrize(("seconds", "shown"), [(2.9, "2 s ago"), (61, "1 m ago"), (200_000, "2 d ago")])
def test_how_long_ago_something_was_is_said_with_a_space(seconds, shown):
    assert tables.ago(seconds) == shown


def test_a_last_column_that_matters_takes_the_place_of_spare_ones():
    columns = (*COLUMNS[:3], tables.Column("TEXT", least=27))
    title, line = tables.lines(columns, ROWS, PLAIN._replace(is_terminal=True, width=50))
    assert title.split() == ["ID", "TEXT"]
    assert line.endswith("a text that is far too long")
