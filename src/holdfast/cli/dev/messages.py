"""What parent and child of `holdfast dev` tell each other: settings on the command line, news on a pipe."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the developer asked for."""

    app: str
    temp: bool
    concurrency: int | None
    grace_s: float
    #: Where a store to be thrown away is kept.
    place: str = ""


class Files(msgspec.Struct, frozen=True, tag=True):
    """The files the application is made of, as far as they are imported."""

    paths: tuple[str, ...]


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The child works."""

    url: str
    tasks: tuple[str, ...]


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The application cannot be used as it is; the child has ended."""

    #: What is wrong, with the lines of the application that led there.
    text: str
    #: How a worker would exit.
    exit_code: int


News = Files | Ready | Broken
encode_news = msgspec.json.Encoder().encode
decode_news: msgspec.json.Decoder[News] = msgspec.json.Decoder(News)
