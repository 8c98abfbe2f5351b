"""`holdfast serve`, as people at a terminal meet it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx2
import pytest

#: Runs the command line without some packages.
BARE = "import sys; [sys.modules.__setitem__(name, None) for name in {}]; from holdfast.cli import main; main()"


@pytest.fixture
def env(tmp_path):
    return {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "httpx2"])
def test_without_its_extra_it_says_what_to_install(missing, env):
    command = [sys.executable, "-c", BARE.format([missing]), "serve", "--port", "0"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "needs the extra `web`" in ended.stderr
    assert "pip install 'holdfast[web]'" in ended.stderr


def test_what_goes_wrong_while_it_serves_is_told_with_its_facts(tmp_path, env):
    access = tmp_path / "access.json"
    command = [sys.executable, "-c", BARE.format([]), "serve", "--port", "0", "--access", str(access)]
    with subprocess.Popen(
        [*command, "--store", f"wal:{tmp_path / 'jobs'}"], stderr=subprocess.PIPE, text=True, env=env
    ) as serving:
        url = serving.stderr.readline().split()[0]
        access.write_text("nonsense", encoding="utf-8")
        access.chmod(0o600)
        shown = {"Authorization": "Bearer nobodys"}
        assert httpx2.get(f"{url}/api/v1/facing", headers=shown).status_code == 401
        serving.send_signal(signal.SIGTERM)
        told = serving.stderr.read()
    assert f"serve.access_file: file {access}, problem" in told
