"""Where the two homes of zstd meet: the standard library's from Python 3.14 on, before it the same API as a package."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )

__all__ = ["ZstdCompressor", "ZstdDecompressor", "ZstdError", "compressor", "decompressor"]


def compressor() -> ZstdCompressor:
    """Make a compressor that writes a checksum of the content: without it flipped bits come back as good data."""
    return ZstdCompressor(options={CompressionParameter.compression_level: 3, CompressionParameter.checksum_flag: 1})


def decompressor() -> ZstdDecompressor:
    """Make a decompressor that takes no more than 8 MiB for its window, whatever the frame asks for."""
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: 23})
