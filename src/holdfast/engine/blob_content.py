"""Content that lies beside a record, named in it by its hash."""

from __future__ import annotations

import msgspec

from holdfast.model.payloads import ref_in
from holdfast.stores.protocol import Store


def fetch(store: Store, raw: msgspec.Raw) -> msgspec.Raw:
    """Give a payload whole: its content, where the record only names it. Raises BlobMissing or StoreDamaged."""
    ref = ref_in(raw)
    return raw if ref is None else msgspec.Raw(store.blobs.get(ref.digest))
