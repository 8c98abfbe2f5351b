"""Bodies made smaller for the way: zstd between ourselves, gzip too from others. What comes out is bounded.

Shared by both sides. A body that grows beyond its limit is refused at the limit, however small it was when it came.
"""

from __future__ import annotations

import zlib

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.journal.zstd import ZstdError, compressor, decompressor

#: Bytes from which it is worth it.
WORTH = 4096
ZSTD, GZIP = "zstd", "gzip"
#: For zlib: the largest window, with gzip's head and sum around it.
_GZIP_BITS = 31


def packed(content: bytes, encoding: str = ZSTD) -> bytes:
    """Make a body smaller."""
    if encoding == ZSTD:
        making = compressor()
        return making.compress(content) + making.flush()
    squeezing = zlib.compressobj(wbits=_GZIP_BITS)
    return squeezing.compress(content) + squeezing.flush()


def unpacked(content: bytes, encoding: str, most: int) -> bytes:
    """Give a body as it was. Raises PayloadTooLarge beyond `most` bytes, InvalidValue for what cannot be read."""
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return content
    if encoding not in {ZSTD, GZIP}:
        raise InvalidValue(
            f"Content-Encoding: {encoding!r:.40} is not known here. Nothing was done.",
            hint="Use zstd, gzip or none.",
            field="Content-Encoding",
        )
    reading = decompressor() if encoding == ZSTD else zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        found = reading.decompress(content, most + 1)
    except (ZstdError, zlib.error) as problem:
        raise InvalidValue(
            f"the body is no {encoding}: {problem}. Nothing was done.", field="Content-Encoding"
        ) from None
    if len(found) > most:
        raise PayloadTooLarge(f"the body has more than {most:,} bytes. Nothing was done.", hint="Send it in parts.")
    if not reading.eof or reading.unused_data:
        raise InvalidValue(
            f"the body is not one whole piece of {encoding}. Nothing was done.", field="Content-Encoding"
        )
    return found


def chosen(accepted: str) -> str | None:
    """Give the encoding to answer in, of what a caller accepts; None to leave the body as it is."""
    wished = {}
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        wished[name.strip()] = weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return next((encoding for encoding in (ZSTD, GZIP) if wished.get(encoding)), None)
