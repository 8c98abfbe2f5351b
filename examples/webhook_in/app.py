"""A webhook that answers at once: the request becomes a job, under the sender's own event id; a worker does the rest.

    python app.py serve [PORT]      and in another terminal:  holdfast worker app:hf

Senders repeat what was not answered in time. The key makes a repeat meet the first job.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast import Holdfast, HoldfastError

hf = Holdfast("sqlite:jobs.db")
LARGEST = 64 * 1024


@hf.task(queue="webhooks", key_hold="window", key_window=7 * 86_400)
def paid(event: dict[str, Any]) -> str:
    return f"invoice {event['invoice']} is paid"


class Webhook(BaseHTTPRequestHandler):
    """Turns requests into jobs."""

    def do_POST(self) -> None:
        """Take an event; it is durable when it is answered."""
        size = int(self.headers.get("Content-Length", 0))
        if size > LARGEST:
            self.answer(413, {"error": "too large"})
            return
        try:
            event = json.loads(self.rfile.read(size))
            job = paid.options(key=event["id"]).enqueue(event)
        except (ValueError, KeyError, TypeError, HoldfastError) as problem:
            self.answer(400, {"error": str(problem)})
            return
        self.answer(202 if job.created else 200, {"job": job.id})  # durable: the sender may forget it now

    def answer(self, status: int, body: dict[str, str]) -> None:
        """Send JSON."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    with ThreadingHTTPServer(("127.0.0.1", port), Webhook) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
