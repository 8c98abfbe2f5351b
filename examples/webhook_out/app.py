"""Told when a job has ended: a receiver that trusts a signature and acts once, however often it is told.

    python app.py

The receiver runs here, on loopback, so that network is allowed by name; elsewhere only public addresses are told.
"""

import hashlib
import hmac
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db", webhook_allow=["127.0.0.0/8"])
SECRET = secrets.token_urlsafe(32)  # both sides know it; here they are one program
SEEN: set[str] = set()


@hf.task(max_attempts=1)
def divide(a: int, b: int) -> float:
    return a / b


def is_genuine(header: str, body: bytes, secret: str, now: int) -> bool:
    """Tell whether a body was signed with the secret, within the last five minutes."""
    stamp, *proofs = header.split(",")
    signed = stamp.removeprefix("t=").encode() + b"." + body
    expected = "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    is_fresh = abs(now - int(stamp.removeprefix("t="))) < 300
    return is_fresh and any(hmac.compare_digest(proof, expected) for proof in proofs)


class Receiver(BaseHTTPRequestHandler):
    """Acts once for each run."""

    def do_POST(self) -> None:
        """Take a delivery; what is answered with 2xx is not sent again."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        genuine = is_genuine(self.headers["Holdfast-Signature"], body, SECRET, time.time_ns() // 10**9)
        if genuine and self.headers["Idempotency-Key"] not in SEEN:
            SEEN.add(self.headers["Idempotency-Key"])
            told = json.loads(body)
            print(told["event"], "because of", (told["error"] or "nothing\n").splitlines()[-1], flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook = hf.webhook(f"http://127.0.0.1:{server.server_port}/", id="example", secret=SECRET)
        divide.enqueue(6, 2)
        divide.enqueue(1, 0)
        hf.work(concurrency=1, until_idle=True)
        for delivery in hook.deliveries():
            hook.redeliver(delivery.delivery_id)  # as after an outage: the receiver has seen them
        hf.work(until_idle=True)
        print(len(hook.deliveries(status="DELIVERED")), "delivered,", len(SEEN), "acted on")
        server.shutdown()
