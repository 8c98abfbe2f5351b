"""The benchmark of a coordinator measures what it says, and leaves nothing behind."""

from __future__ import annotations

from benchmarks import serve

SMALL = serve.Sizes(
    batched=256, alone=32, threads=16, worked=100, latency=2, callers=4, rounds=2, pace_s=0, filling=256
)


def test_every_caller_of_the_benchmark_finishes_all_its_jobs(tmp_path):
    rows = list(serve.run(tmp_path, SMALL, ["wal"]))
    assert len([row for row in rows if row.unit == "jobs/s"]) == 6
    assert len([row for row in rows if row.unit == "ms"]) == 10
    assert all(row.ours > 0 for row in rows if row.unit in ("jobs/s", "ms", "bytes"))
    assert rows[0].ratio > 0, "beside the same batches without HTTP"
    alone, batch = (row.ours for row in rows[-2:])
    assert alone > batch
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_a_soak_looks_at_the_memory_of_the_coordinator_after_warming_up(tmp_path):
    rows = list(serve.soak(tmp_path, SMALL, ["sqlite"]))
    assert rows[0].ours > 10, "in MB: a Python process with a server in it"
    assert rows[1].name.strip() == "most of minute 1"
    assert rows[1].ours >= rows[0].ours
    assert f"{2 * 4 * SMALL.rounds} rounds" in rows[2].name
    assert not list(tmp_path.iterdir())
