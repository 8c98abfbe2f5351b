"""What the commands about instances print: one shape for all, and sentences that say what did not happen."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import Engine
from holdfast.testing.conformance.provider_kit import COMPLETED, start, started
from holdfast.workflows.provider import Provider


@pytest.fixture
def over(opened):
    """Put an instance into the store that has ended."""
    with opened() as engine:
        ended(engine)


def ended(engine: Engine) -> None:
    provider = Provider(engine)
    provider.enqueue_for_orchestrator(start("over"))
    _, token, _ = provider.fetch_orchestration_item(30.0)
    provider.ack_orchestration_item(token, 1, [started("over")], metadata=COMPLETED)


@pytest.mark.usefixtures("over")
@pytest.mark.parametrize(
    "words",
    [
        ("start", "flow", "--id", "new"),
        ("reset", "over", "--to", "1"),
        ("fork", "over", "--to", "1"),
        ("prune", "--yes"),
    ],
    ids=lambda words: words[0],
)
def test_what_was_only_tried_is_marked_so(rows, words):
    told = rows("workflows", *words, "--dry-run")
    assert told["dry_run"] is True
    assert "dry_run" not in rows("workflows", *words)


def test_what_is_imported_for_a_try_is_marked_so(holdfast, rows, over, tmp_path):
    file = tmp_path / "over.json"
    assert holdfast("workflows", "export", "over", "--to", str(file)).exit_code == 0
    assert holdfast("workflows", "rm", "over", "--yes").exit_code == 0
    assert rows("workflows", "import", str(file), "--dry-run")["dry_run"] is True
    assert "dry_run" not in rows("workflows", "import", str(file))


def test_a_start_that_was_there_already_does_not_claim_to_have_started_it(holdfast):
    assert "is started" in holdfast("workflows", "start", "flow", "--id", "a").stderr
    again = holdfast("workflows", "start", "flow", "--id", "a", "-o", "json")
    assert "is started" not in again.stderr
    assert msgspec.json.decode(again.stdout)["created"] is False


@pytest.mark.parametrize("name", ["", "a b", "x" * 300])
def test_what_no_workflow_can_be_called_is_not_started(holdfast, rows, name):
    assert holdfast("workflows", "start", name).exit_code == 2
    assert holdfast("workflows", "start", "flow").exit_code == 0
    assert len(rows("workflows", "ls")) == 1


def test_what_is_not_removed_is_said_in_sentences(holdfast):
    holdfast("workflows", "start", "flow", "--id", "a")
    told = holdfast("workflows", "rm", "a", "--yes").stderr
    assert told.endswith(
        "instance 'a' is still running. It was not removed. With --force it is removed all the same.\n"
    )
    told = holdfast("workflows", "rm", "x", "--yes").stderr
    assert told.endswith("instance not found: 'x'. It was not removed.\n")
