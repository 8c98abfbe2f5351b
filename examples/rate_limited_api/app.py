"""A service that allows so many calls in so much time: the queue keeps the rate, over all workers and processes.

    python app.py

Three limits at once: ten starts in a second for the whole queue, three at a time, and one at a time for each customer.
"""

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast import Holdfast, Retry

hf = Holdfast("sqlite:jobs.db")
API = "http://127.0.0.1:{port}/customers/{customer}"
PERIOD_S = 1.0
CALLS = 10


@hf.task(queue="api", timeout=30)
def fetch(port: int, customer: int) -> str:
    try:
        with urllib.request.urlopen(API.format(port=port, customer=customer), timeout=10) as answer:  # noqa: S310 - our own URL
            return str(json.load(answer)["name"])
    except urllib.error.HTTPError as problem:
        if problem.code == 429:  # somebody else uses our share: as late as the service says, but not never
            raise Retry("the service is busy", after=float(problem.headers.get("Retry-After", 1))) from problem
        raise


class Service(BaseHTTPRequestHandler):
    """Stands for the service; busy at first, and then it counts its calls."""

    calls: list[str] = []  # noqa: RUF012 - shared by all requests on purpose

    def do_GET(self) -> None:
        """Answer a call."""
        self.calls.append(self.path)
        self.send_response(429 if len(self.calls) == 1 else 200)
        self.send_header("Retry-After", "0.5")
        self.end_headers()
        self.wfile.write(json.dumps({"name": f"customer at {self.path}"}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    hf.queue("api").set(rate=(CALLS, PERIOD_S), max_running=3)
    jobs = [
        fetch.options(limit_key=f"customer-{number % 4}", key_limit=1).enqueue(service.server_port, number % 4)
        for number in range(25)
    ]
    worker = hf.worker()
    worker.start()
    names = {job.result(timeout=60) for job in jobs}
    worker.drain()
    worker.join()
    service.shutdown()
    print(f"{len(Service.calls)} calls for {len(names)} customers")
    hf.close()
