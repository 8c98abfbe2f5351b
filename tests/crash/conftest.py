"""Thousands of repairs are logged here, each as it should be; a failing test is read without them."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
