"""Signatures of webhook deliveries: proof for the receiver of who sent a body, and when.

`t=<unix seconds>,v1=<hex>` where `v1` is HMAC-SHA256 with the secret over `t`, a dot and the body. While secrets are
changed there are two, and a `v1` of each: the receiver accepts any that fits one it knows.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

HEADER = "Holdfast-Signature"


def signature(secrets: Sequence[str], body: bytes, unix: int) -> str:
    """Give the value of the header for a body that is sent at `unix`, in seconds since 1970."""
    signed = f"{unix}.".encode() + body
    proofs = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={unix}", *(f"v1={proof}" for proof in proofs)])
