"""The Flask example, over real HTTP: one process serves, another one works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from holdfast import Holdfast

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_app"


def flask(*words):
    return [sys.executable, "-m", "flask", *words]


@pytest.fixture
def site(tmp_path):
    """Serve the example from a directory of its own, as its README says; give its address."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    server = subprocess.Popen(
        flask("run", "--port", "0"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    for line in server.stderr:
        found = re.search(r"Running on (http://\S+)", line)
        if found:
            break
    else:
        pytest.fail("the server did not start")
    yield found[1]
    server.terminate()
    server.communicate()


def fetch(url, **form):
    with urlopen(url, data=urlencode(form).encode() if form else None, timeout=30) as answer:
        return json.load(answer)


def test_a_sign_up_over_http_sends_one_mail_by_a_worker_of_another_process(site, tmp_path):
    first = fetch(f"{site}/signups", address="ada@example.com", name="Ada")["id"]
    assert fetch(f"{site}/signups", address="ada@example.com", name="Ada")["id"] == first
    busy = fetch(f"{site}/signups", address="bob@busy.example.com", name="Bob")["id"]
    assert fetch(f"{site}/signups/{first}")["status"] == "QUEUED"
    worker = flask("holdfast", "worker")
    with subprocess.Popen(worker, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as working:
        with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
            for job_id in (first, busy):
                hf.job(job_id).wait(60)
        said = {job_id: fetch(f"{site}/signups/{job_id}")["said"] for job_id in (first, busy)}
        working.terminate()
        _, told = working.communicate(timeout=60)
    assert working.returncode == 0, told
    assert said[first] == "sent to ada@example.com at attempt 1"
    assert said[busy] == "sent to bob@busy.example.com at attempt 2"
    assert (tmp_path / "outbox.txt").read_text().count("welcome!") == 2
    with pytest.raises(HTTPError, match="404"):
        fetch(f"{site}/signups/nothing")
