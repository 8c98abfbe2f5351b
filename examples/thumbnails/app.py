"""Thumbnails with progress: each job makes one picture in several sizes and says how far it is.

    python app.py [PICTURES]

Pictures are drawn and written as PNG with the standard library alone; put your own in place of `draw`.
"""

import struct
import sys
import zlib
from pathlib import Path

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")
SIZES = (32, 64, 128)


def draw(picture: int, size: int) -> list[bytes]:
    """Give the rows of a picture, three bytes a pixel."""
    return [
        b"".join(bytes(((x * 255) // size, (y * 255) // size, picture * 40 % 256)) for x in range(size))
        for y in range(size)
    ]


def png(rows: list[bytes]) -> bytes:
    """Write rows of pixels as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(rows), len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@hf.task(timeout=60)
def thumbnails(picture: int, folder: str) -> list[str]:
    made = []
    for done, size in enumerate(SIZES, 1):
        file = Path(folder) / f"picture-{picture}-{size}.png"
        # Write beside, then rename: whoever looks sees a whole picture, and a second run does no harm.
        draft = file.with_suffix(f".{hf.current.run_id}.tmp")
        draft.write_bytes(png(draw(picture, size)))
        draft.replace(file)
        made.append(file.name)
        hf.current.progress(done, len(SIZES), f"{size} pixels")
    return made


def main(count: int) -> None:
    folder = Path("thumbnails")
    folder.mkdir(exist_ok=True)
    jobs = thumbnails.enqueue_many([(picture, str(folder)) for picture in range(count)])
    hf.work(until_idle=True)
    for job in jobs:
        progress = job.progress
        assert progress is not None
        print(f"{progress.done:.0f} of {progress.total:.0f}: {', '.join(job.result())}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
