"""`python -m holdfast.web.api`: write the OpenAPI document to stdout."""

from __future__ import annotations

import sys

from holdfast.web.api.endpoint_table import TABLE
from holdfast.web.api.openapi import document, written

if __name__ == "__main__":
    sys.stdout.buffer.write(written(document(TABLE)))
