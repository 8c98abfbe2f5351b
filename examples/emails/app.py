"""E-mails with retries and a unique key: a server that is down is tried again, a double click sends one message.

python app.py
"""

from dataclasses import dataclass, field

from holdfast import Backoff, Fatal, Holdfast

hf = Holdfast("sqlite:jobs.db")


@dataclass
class MailServer:
    """Stands for smtplib.SMTP; the first connection fails, as servers do."""

    failures: int = 1
    sent: list[tuple[str, str]] = field(default_factory=list)

    def send(self, to: str, text: str) -> None:
        """Deliver a message."""
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError("the mail server is restarting")
        self.sent.append((to, text))


server = MailServer()


@hf.task(queue="mail", max_attempts=5, backoff=Backoff(base_s=0.2, factor=2, cap_s=60), timeout=30)
def send_mail(to: str, text: str) -> None:
    if "@" not in to:
        raise Fatal(f"{to!r} is no address")  # trying again would not help
    server.send(to, text)  # whatever it raises is tried again, later and later


def welcome(user: int, to: str) -> str:
    """Send a welcome, once: as long as the key is held, another call meets the same job."""
    job = send_mail.options(key=f"welcome-{user}", key_hold="forever").enqueue(to, "Welcome!")
    return job.id


if __name__ == "__main__":
    first, again = welcome(42, "ada@example.com"), welcome(42, "ada@example.com")
    print("one job:", first == again)
    wrong = send_mail.enqueue("not an address", "Hello")
    worker = hf.worker()
    worker.start()
    record = hf.job(first).wait(timeout=60)
    print("sent:", server.sent, "attempts:", record.attempts)
    print(wrong.wait(timeout=60).status, wrong.refresh().error)
    worker.drain()
    worker.join()
    hf.close()
