"""A real coordinator on a loopback port of its own, in a thread."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from holdfast.web.server.serving import Listening, Serving


@contextmanager
def running(url, *, port=0, clock=None, **listening):
    serving = Serving(url, Listening(port=port, **listening), clock=clock)
    thread = threading.Thread(target=serving.run, name="serving")
    thread.start()
    serving.ready.wait()
    try:
        yield serving
    finally:
        serving.stop()
        thread.join()
