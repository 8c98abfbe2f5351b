"""What the documents show works as shown: the README's table of promises, the verifier of the format page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from holdfast import Engine, open_store
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.events import Event

ROOT = Path(__file__).parents[2]


def blocks(path, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)


def test_every_promise_of_the_readme_names_a_proof_that_exists():
    proofs = re.findall(r"`((?:\w+/)*test_\w+\.py)`", (ROOT / "README.md").read_text())
    assert len(proofs) >= 14
    for proof in proofs:
        source = (ROOT / "tests" / (proof if "/" in proof else f"promises/{proof}")).read_text()
        assert re.search(r"^(def test_|class Test)", source, re.MULTILINE), f"{proof} proves nothing"


def test_what_an_event_of_ours_does_already_does_not_wait_in_the_map_of_the_seeds():
    tags = {kind.__struct_config__.tag for kind in get_args(Event)}
    assert "schedule:fired" in tags
    rows = [line.split(" | ") for line in (ROOT / "docs/seeds.md").read_text().splitlines() if line.startswith("| ")]
    waiting = [row for row in rows if len(row) == 4 and row[-1].rstrip(" |") == "runbooks"]
    assert waiting
    assert [row[0] for row in waiting if tags.intersection(re.findall(r"`([a-z_]+:[a-z_]+)`", row[2]))] == []


def test_the_verifier_of_the_format_page_agrees_with_the_store(tmp_path):
    engine = Engine(open_store(f"wal:{tmp_path / 'jobs'}"))
    for n in range(7):
        engine.submit(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    (source,) = [block for block in blocks("docs/formats/journal.md") if "def verify(" in block]
    told: dict = {}
    exec(compile(source, "journal.md", "exec"), told)  # our own page, which says that it can be run
    assert told["verify"](tmp_path / "jobs") == 8  # seven jobs and the closing
    (segment,) = (tmp_path / "jobs" / "log").iterdir()
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Exception, match=r".*"):
        told["verify"](tmp_path / "jobs")


PAGES = sorted(path for path in ROOT.glob("**/*.md") if not {".venv", ".pytest_cache"} & set(path.parts))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
