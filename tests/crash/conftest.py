"""What tests of crashes share."""

from __future__ import annotations

import logging
import uuid
from types import SimpleNamespace

import pytest

from holdfast.journal import layout


@pytest.fixture(autouse=True)
def quiet():
    """Thousands of repairs are logged here, each as it should be; a failing test is read without them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def one_id(monkeypatch):
    """Give one id to all journals: lives that end alike leave the same disk, which need not be examined twice."""
    monkeypatch.setattr(layout, "uuid", SimpleNamespace(uuid4=lambda: uuid.UUID(int=1)))
