"""Entries of the feed as people and programs read them."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine.views.feed import published
from holdfast.stores.protocol import Entry


def entry(**event):
    return Entry(7, "2026-01-01T00:00:00.000000Z", msgspec.Raw(msgspec.json.encode(event)))


@pytest.mark.parametrize("part", ["webhook", "changes"])
def test_secrets_of_a_webhook_are_left_out_and_nothing_else(part):
    shown = published(entry(type="webhook:any", cmd="c", **{part: {"url": "https://x", "secrets": ["s1", "s2"]}}))
    assert (shown.seq, shown.ts) == (7, "2026-01-01T00:00:00.000000Z")
    assert msgspec.json.decode(shown.event) == {"type": "webhook:any", "cmd": "c", part: {"url": "https://x"}}


@pytest.mark.parametrize("kind", ["job:created", "webhook:deleted"])
def test_entries_without_secrets_of_a_webhook_are_not_changed(kind):
    given = entry(type=kind, job={"params": {"secrets": ["the user's own"]}})
    assert msgspec.json.decode(published(given).event) == msgspec.json.decode(given.event)
