"""Where the lines of a run are: a file on stores that are directories, nowhere else."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.model.times import FOREVER


@pytest.fixture(params=["memory", "sqlite", "wal", "dir"])
def hf(request, tmp_path):
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}.get(request.param)
    with Holdfast(url or f"{request.param}:{tmp_path / 'jobs'}") as app:
        yield app


@pytest.fixture
def said(hf):
    @hf.task(name="says")
    def says(*, aloud: bool) -> None:
        if aloud:
            hf.current.log.info("hello")

    jobs = says.enqueue(aloud=True), says.enqueue(aloud=False)
    hf.work(until_idle=True)
    return jobs


def test_run_names_the_file_that_holds_its_lines(hf, said):
    (spoke,), (silent,) = (job.runs() for job in said)
    assert silent.log_path is None
    if hf.url.startswith(("memory:", "sqlite:")):
        assert spoke.log_path is None
        return
    assert "hello" in Path(spoke.log_path).read_text()
    with hf.engine.read() as view:
        assert view.runs(said[0].id)[0].log_path is None  # looked up, and not stored
    hf.engine.store.logs.sweep(FOREVER, 10)
    assert said[0].runs()[0].log_path is None


def test_command_line_shows_the_file_that_holds_the_lines_of_a_run(hf, said):
    if hf.url == "memory:":
        return
    path = said[0].runs()[0].log_path
    hf.close()
    told = CliRunner().invoke(cli, ["jobs", "show", said[0].id, "-o", "json"], env={"HOLDFAST_STORE": hf.url})
    assert [run["log_path"] for run in msgspec.json.decode(told.stdout)["runs"]] == [path]
