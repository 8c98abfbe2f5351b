"""Signals of declared types through a coordinator: refused by what its live workers declare, whoever sends them."""

from __future__ import annotations

import httpx2
import pytest
from click.testing import CliRunner
from coordinators import running

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.errors import InvalidValue

PATIENCE_S = 30
GOOD = {"eur": 9}
BAD = {"eur": "nine"}


@pytest.fixture(params=["memory", "sqlite"])
def served(request, tmp_path):
    """The URL of a coordinator at which an instance waits, and of which a worker is live."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"
    with running(url) as serving, Holdfast(serving.url) as hf:

        @hf.workflow(signals={"paid": dict[str, int]})
        async def order() -> int:
            hf.set_status("waits")
            paid: dict[str, int] = await hf.signal("paid")
            return paid["eur"]

        run = order.start(id="o-1")
        worker = hf.worker()
        worker.start()
        run.wait_status(timeout=PATIENCE_S)
        yield serving.url
        worker.stop()
        assert worker.join(PATIENCE_S)


def test_client_without_the_workflow_is_refused_a_signal_of_the_wrong_type(served):
    with Holdfast(served) as client:
        run = client.instance("o-1")
        with pytest.raises(InvalidValue, match=r"signal 'paid'.*workflow 'order'.*`\$\.eur`.*Nothing was sent"):
            run.signal("paid", BAD)
        run.signal("paid", GOOD)
        assert run.result(timeout=PATIENCE_S) == 9
        assert "set aside" not in run.explain().sentence


def test_http_request_with_a_signal_of_the_wrong_type_is_refused(served):
    def post(path, body):
        return httpx2.post(f"{served}/api/v1{path}", json=body)

    told = post("/workflows/o-1/signal", {"name": "paid", "data": BAD})
    assert (told.status_code, told.json()["code"]) == (422, "invalid_value")
    assert "$.eur" in told.json()["detail"]
    told = post("/workflows", {"workflow": "order", "id": "o-2", "signals": [{"name": "paid", "data": BAD}]})
    assert (told.status_code, told.json()["code"]) == (422, "invalid_value")
    assert "Nothing was started" in told.json()["detail"]
    assert httpx2.get(f"{served}/api/v1/workflows/o-2").status_code == 404
    assert post("/workflows/o-1/signal", {"name": "paid", "data": GOOD}).status_code == 200


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_command_line_is_refused_a_signal_of_the_wrong_type(served, flags):
    def run(data):
        return CliRunner().invoke(
            cli, ["workflows", "signal", "o-1", "paid", "--data", data, *flags], env={"HOLDFAST_STORE": served}
        )

    told = run('{"eur": "nine"}')
    assert told.exit_code == 2, told.output
    assert "$.eur" in told.stderr
    assert "Nothing was sent" in told.stderr
    assert run('{"eur": 9}').exit_code == 0
