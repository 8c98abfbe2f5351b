"""The Django example, over real HTTP: one process serves, another one works."""

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

from holdfast import Backoff, Holdfast

EXAMPLE = Path(__file__).parents[2] / "examples" / "django_app"


@pytest.fixture
def site(tmp_path):
    """Serve the example from a directory of its own, as its README says; give its address."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, "manage.py", "runserver", "127.0.0.1:0", "--noreload"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in server.stdout:
        found = re.search(r"server at (http://\S+[1-9])/", line)
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


def test_a_request_enqueues_on_commit_and_a_worker_of_another_process_runs_it(site, tmp_path):
    first = fetch(f"{site}/captions", picture="tom.jpg")["id"]
    second = fetch(f"{site}/captions", picture="blurred.jpg")["id"]
    with pytest.raises(HTTPError, match="404"):
        fetch(f"{site}/captions", picture="broken")
    assert fetch(f"{site}/captions/{first}") == {"status": "READY", "caption": None, "attempts": 0}
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        assert {job.id for job in hf.jobs()} == {first, second}
        hf.job(second).update(backoff=Backoff(base_s=0.05))
        worker = [sys.executable, "manage.py", "holdfast", "worker"]
        with subprocess.Popen(worker, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as working:
            for job_id in (first, second):
                hf.job(job_id).wait(60)
            working.terminate()
            _, told = working.communicate(timeout=60)
    assert working.returncode == 0, told
    done = "tom.jpg: a cat, seen at attempt 1"
    assert fetch(f"{site}/captions/{first}") == {"status": "SUCCESSFUL", "caption": done, "attempts": 1}
    assert fetch(f"{site}/captions/{second}")["attempts"] == 2
    with pytest.raises(HTTPError, match="404"):
        fetch(f"{site}/captions/nothing")
