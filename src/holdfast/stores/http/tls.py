"""Whom a client believes to be its coordinator: who shows a certificate that the system's authorities have signed.

`SSL_CERT_FILE` or `SSL_CERT_DIR` name others, such as one of your own. Nothing turns the check off.
"""

from __future__ import annotations

import os
import ssl

import httpx2

from holdfast.errors import InvalidValue


def trusted(url: str) -> ssl.SSLContext | bool:
    """Give how the certificate behind a URL is checked; without TLS nobody shows one. Raises InvalidValue."""
    if not url.lower().startswith("https:"):
        return False  # loading the certificates of the world takes 40 ms
    try:
        return httpx2.create_ssl_context()
    except OSError as problem:
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise InvalidValue(
            f"{named}: the certificates to trust cannot be read: {problem}. Nothing was opened.",
            hint="SSL_CERT_FILE names a file in PEM.",
        ) from problem
