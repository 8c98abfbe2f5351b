"""Bars, sizes and progress as text. Pure."""

from __future__ import annotations

import msgspec

from holdfast.cli.render.terminal import Screen, safe
from holdfast.model.payloads import NULL
from holdfast.model.workers import Progress

#: A bar's last cell, filled by eighths.
_PARTS = " ▏▎▍▌▋▊▉"


def bar(fraction: float, cells: int, *, unicode: bool = True) -> str:
    """Draw a fraction as so many cells; anything above nothing shows."""
    share = min(1.0, max(0.0, fraction))
    if not unicode:
        full = round(share * cells) or (1 if share > 0 else 0)
        return "#" * full + "-" * (cells - full)
    eighths = round(share * cells * 8) or (1 if share > 0 else 0)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_PARTS[rest] if rest else "")).ljust(cells)


def progress_text(progress: Progress, screen: Screen, cells: int = 0) -> str:
    """Say how far a run is: a bar of `cells` if there is a fraction, the percentage, the amounts, its message."""
    parts = []
    if progress.fraction is not None:
        if cells:
            drawn = bar(progress.fraction, cells, unicode=screen.unicode)
            parts.append(f"[{drawn}]")
        parts.append(f"{int(progress.fraction * 100)} %")
    if progress.done is not None:
        parts.append(
            f"{progress.done:,.10g}" if progress.total is None else f"{progress.done:,.10g} of {progress.total:,.10g}"
        )
    if progress.message:
        parts.append(safe(progress.message))
    return "  ".join(parts)


def progress_of(raw: msgspec.Raw) -> Progress | None:
    """Read the progress a run ended with, if it said any."""
    return None if raw == NULL else msgspec.json.decode(raw, type=Progress)


def size_text(count: int) -> str:
    """Write a number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError  # the loop returns
