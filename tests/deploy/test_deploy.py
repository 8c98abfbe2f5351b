"""What is offered for putting a coordinator into service is well formed, hardened, and names options there are."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.web.server.serve_command import serve

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "holdfast-serve.service"


def settings():
    """Read the unit: section → [(name, value)]."""
    found, section = {}, None
    for line in UNIT.read_text().splitlines():
        if re.fullmatch(r"\[\w+\]", line):
            section = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            assert re.fullmatch(r"[A-Z]\w+", name), line
            section.append((name, value))
    return found


def instructions():
    """Read the Containerfile: [(instruction, rest)]."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_unit_keeps_the_service_to_its_state_and_its_port():
    unit = settings()
    assert list(unit) == ["Unit", "Service", "Install"]
    service = dict(unit["Service"])
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "DynamicUser", "RestrictNamespaces"):
        assert service[name] == "yes"
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    # A wrong option and a store that others have are not mended by starting again; a failed disk is, by reading it.
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2 6")
    assert shlex.split(service["ExecStart"]) == ["/opt/holdfast/bin/holdfast", "serve", "$OPTIONS"]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd here; the unit is parsed above"
)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    unit = tmp_path / UNIT.name
    # Whatever is installed here, the program exists.
    unit.write_text(UNIT.read_text().replace("/opt/holdfast/bin/holdfast serve", "/bin/true"))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (told.returncode, [line for line in told.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_container_runs_serve_as_nobody_special():
    lines = instructions()
    known = {
        "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT",
    }  # fmt: skip
    assert {name for name, _ in lines} <= known
    assert lines[0][0] == "FROM"
    last = dict(lines[max(at for at, (name, _) in enumerate(lines) if name == "FROM") :])
    assert last["USER"] not in {"root", "0"}
    assert json.loads(last["ENTRYPOINT"]) == ["holdfast", "serve"]
    assert json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[0] == "python"
    assert (last["EXPOSE"], last["STOPSIGNAL"]) == ("8480", "SIGTERM")
    for name, rest in lines:
        if name == "COPY" and "--from" not in rest:
            assert all((DEPLOY.parent / source).exists() for source in rest.split()[:-1]), rest


@pytest.mark.parametrize("name", ["holdfast-serve.service", "Containerfile", "README.md"])
def test_options_that_are_named_exist(name):
    options = {option for parameter in serve.params for option in parameter.opts}
    text = (DEPLOY / name).read_text()
    named = set(re.findall(r"--(?:host|port|store|access|tls-\w+|behind-\w+|limit)\b", text))
    assert named <= options
