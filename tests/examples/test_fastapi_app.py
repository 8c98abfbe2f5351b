"""The FastAPI example: a request enqueues, the worker inside works, the result is read over HTTP."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_app"
ORDER = {"customer": "Ada", "prices": [3.5, 4]}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Load the example's module from a directory of its own."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("app", tmp_path / "app.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "app", module)
    spec.loader.exec_module(module)
    yield module
    module.hf.close()


def test_an_order_is_taken_at_once_and_its_invoice_made_by_the_worker_inside(site):
    with TestClient(site.app) as client:
        taken = client.post("/orders", json=ORDER)
        assert taken.status_code == 202
        shown = client.get(f"/orders/{taken.json()['id']}?wait=20").json()
        assert shown["status"] == "COMPLETED"
        assert shown["invoice"] == {"customer": "Ada", "total": 7.5}
        assert client.get("/orders/nothing").status_code == 404
        assert client.post("/orders", json={"customer": 1}).status_code == 422


def test_workers_of_their_own_make_the_invoices_of_a_server_that_only_enqueues(site, tmp_path):
    site.app.router.lifespan_context = site.hf.lifespan
    with TestClient(site.app) as client:
        order = client.post("/orders", json=ORDER).json()["id"]
        assert client.get(f"/orders/{order}").json() == {"id": order, "status": "QUEUED", "invoice": None}
        told = subprocess.run(
            [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "app:hf", "--until-idle"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        assert client.get(f"/orders/{order}").json()["invoice"]["total"] == 7.5
