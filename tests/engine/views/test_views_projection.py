"""Structs made of others."""

from __future__ import annotations

import msgspec

from holdfast.engine.views.jobs import FullJob, JobRow, RunRow
from holdfast.engine.views.projection import PREVIEW, fill, preview, shown
from holdfast.engine.views.reservations import ReservationRow
from holdfast.engine.views.webhooks import WebhookRow
from holdfast.model.jobs import Job, Run
from holdfast.model.reservations import Reservation
from holdfast.model.webhooks import Webhook


class Thing(msgspec.Struct, omit_defaults=True):
    """A thing."""

    a: int
    b: str = "b"
    c: str | None = None


def test_a_shown_struct_has_the_fields_of_its_record_but_some_and_others_beside():
    kind = shown("Shown", Thing, without=("b",), more=bool)
    assert kind.__struct_fields__ == ("a", "c", "more")
    assert kind.__doc__ == "A thing."
    # Nothing is left out, not even what is as usual.
    assert msgspec.json.encode(fill(kind, Thing(1), more=True)) == b'{"a":1,"c":null,"more":true}'


def test_a_preview_is_cut_at_characters_not_bytes():
    assert preview(msgspec.Raw(b'"short"')) == '"short"'
    assert len(preview(msgspec.Raw(("é" * 500).encode()))) == PREVIEW
    assert len(preview(msgspec.Raw(("日" * 500).encode()))) == PREVIEW
    assert len(preview(msgspec.Raw(("🙂" * 500).encode()))) == PREVIEW
    assert preview("x" * 500) == "x" * PREVIEW
    assert preview(None) == ""


def test_rows_follow_their_records():
    payloads = {"params", "result"}
    assert set(JobRow.__struct_fields__) == set(Job.__struct_fields__) - payloads | {"preview", "reason"}
    assert set(FullJob.__struct_fields__) == set(Job.__struct_fields__) | {"reason", "progress", "runs"}
    assert set(Run.__struct_fields__) - set(RunRow.__struct_fields__) == {"params_snapshot", "details", "artifacts"}
    assert set(ReservationRow.__struct_fields__) > set(Reservation.__struct_fields__)
    assert set(Webhook.__struct_fields__) - set(WebhookRow.__struct_fields__) == {"secrets"}
