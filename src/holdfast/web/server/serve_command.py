"""`holdfast serve`: offer a store to other processes and hosts until told to stop."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import click

from holdfast.stores import access_file
from holdfast.web.server import malloc
from holdfast.web.server.limits import limits_of
from holdfast.web.server.retention_options import retention_of
from holdfast.web.server.serving import HOST, PORT, Listening, Serving


@click.command()
@click.option(
    "--store",
    metavar="URL",
    envvar="HOLDFAST_STORE",
    help="The store; else HOLDFAST_STORE, else wal: in the state directory.",
)
@click.option("--host", default=HOST, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 for any that is free.")
@click.option(
    "--access",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of access tokens; default: access.json in the state directory.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="A certificate, in PEM.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option(
    "--behind-proxy",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy that ends TLS, or a network of them: only they are heard, and believed whom they speak for.",
)
@click.option(
    "--webhook-allow",
    multiple=True,
    metavar="NETWORK",
    help="A network that webhooks may lie in, such as 10.0.0.0/8; by default they go to public addresses only.",
)
@click.option(
    "--retention",
    multiple=True,
    metavar="NAME=VALUE",
    help="How long, or how many of, what has ended is kept, such as done_s=2d, failed_max=1000 or feed_s=30d.",
)
@click.option("--limit", multiple=True, metavar="NAME=VALUE", help="Change a limit, such as body=16777216 or rate=500.")
def serve(
    *,
    store: str | None,
    host: str,
    port: int,
    access: Path | None,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: tuple[str, ...],
    webhook_allow: tuple[str, ...],
    retention: tuple[str, ...],
    limit: tuple[str, ...],
) -> None:
    """Be the authority over a store, for workers and programs elsewhere: Holdfast("http://127.0.0.1:8480").

    Beyond this machine it listens only with access tokens, and with TLS or behind a proxy. SIGTERM or SIGINT ends it
    cleanly, a second one at once.
    """
    state = access_file.state_dir()
    if store is None:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = f"wal:{state / 'serve'}"
    _raise_descriptors()
    malloc.keep_small()
    listening = Listening(
        host=host,
        port=port,
        access_file=access or state / "access.json",
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        webhook_allow=webhook_allow,
        retention=retention_of(retention),
        limits=limits_of(limit),
    )
    serving = Serving(store, listening)

    def told() -> None:
        recovery = f": {serving.recovery}" if serving.recovery else ""
        print(f"{serving.url} serves {store}{recovery}", file=sys.stderr, flush=True)  # noqa: T201 - its product

    serving.run(told)
    print("stopped", file=sys.stderr, flush=True)  # noqa: T201 - the same


def _raise_descriptors() -> None:
    """Allow this process as many descriptors as it may have: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):  # a sandbox may forbid even that; then what there is will do
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
