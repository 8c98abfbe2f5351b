"""A web page that sends mail without making its visitor wait.

flask run                    serves
flask holdfast worker        sends
flask holdfast jobs ls       shows what happened
"""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response, current_app, jsonify, request

from holdfast import Holdfast, Job, Retry
from holdfast.contrib.flask import init_app
from holdfast.errors import JobNotFound

hf = Holdfast("sqlite:jobs.db")


@hf.task(queue="mail", max_attempts=5)
def welcome(address: str, name: str) -> str:
    """Send one mail. Handlers run within the application's context."""
    outbox = Path(current_app.config["OUTBOX"])
    if hf.current.run_no == 1 and "busy" in address:
        raise Retry("the mail server asks us to come back", after=0.1)
    with outbox.open("a", encoding="utf-8") as file:
        file.write(f"To: {address}\nDear {name}, welcome!\n\n")
    return f"sent to {address} at attempt {hf.current.run_no}"


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["OUTBOX"] = "outbox.txt"
    app.config.from_prefixed_env()  # FLASK_OUTBOX, FLASK_HOLDFAST_STORE
    init_app(app, hf)

    @app.post("/signups")
    def sign_up() -> tuple[Response, int]:
        address, name = request.form["address"], request.form["name"]
        # The key keeps a double click from sending two mails, for a day.
        once = welcome.options(key=f"welcome:{address}", key_hold="window", key_window=86_400)
        return jsonify(id=once.enqueue(address, name).id), 202

    @app.get("/signups/<job_id>")
    def show(job_id: str) -> Response:
        job: Job[str] = hf.job(job_id)
        record = job.refresh()
        return jsonify(status=record.status, said=job.result() if record.status == "COMPLETED" else record.error)

    @app.errorhandler(JobNotFound)
    def missing(error: JobNotFound) -> tuple[Response, int]:
        return jsonify(error=error.message), 404

    return app
