"""`holdfast bench`: every row is measured on a temporary store, and the named store is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.root import cli

ROWS = ["disk sync", "enqueue", "enqueue_many", "drain", "workflows"]


def bench(url, *args):
    return CliRunner().invoke(cli, ["bench", "--store", url, "--seconds", "0.1", *args])


@pytest.mark.parametrize("scheme", ["wal", "sqlite", "dir"])
def test_bench_measures_every_row_and_leaves_nothing_behind(scheme, tmp_path):
    url = f"{scheme}:{tmp_path / 'jobs'}"
    answer = bench(url, "-o", "json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["store"] == url
    assert found["machine"]
    assert found["filesystem"]
    assert [row["name"] for row in found["rows"]] == ROWS
    assert all(row["rate"] > 0 and row["unit"] and row["meaning"] for row in found["rows"])
    assert not list(tmp_path.iterdir()), "neither a temporary store nor the named one"


def test_bench_prints_a_table_with_the_meaning_of_each_row(tmp_path):
    answer = bench(f"wal:{tmp_path / 'jobs'}?durability=relaxed")
    assert answer.exit_code == 0, answer.output
    title, heading, *rows = answer.stdout.splitlines()
    assert title.startswith(f"wal:{tmp_path / 'jobs'}?durability=relaxed, ")
    assert heading.split() == ["MEASURED", "RATE", "MEANING"]
    assert [row.partition("  ")[0] for row in rows] == ROWS
    assert rows[2].endswith(" jobs/s  1,000 jobs a call, from one thread")


def test_bench_does_not_change_the_named_store(place, filled):
    filled("a", "b")
    path = Path(place.partition(":")[2])

    def content():
        files = path.parent.rglob("*")
        return {file: file.read_bytes() for file in files if file.is_file()}

    before = content()
    answer = bench(place)
    assert answer.exit_code == 0, answer.output
    assert content() == before


def test_bench_of_memory_has_no_row_for_the_disk():
    answer = bench("memory:", "-o", "json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["filesystem"] is None
    assert [row["name"] for row in found["rows"]] == ROWS[1:]


def test_bench_of_a_coordinator_is_refused():
    answer = bench("http://127.0.0.1:1")
    assert answer.exit_code == 6
    assert "is a coordinator" in answer.stderr


def test_bench_without_a_directory_is_refused(tmp_path):
    answer = bench(f"wal:{tmp_path / 'nowhere' / 'jobs'}")
    assert answer.exit_code == 3
    assert f"Directory {tmp_path / 'nowhere'} not found." in answer.stderr
