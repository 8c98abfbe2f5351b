"""A schedule that makes no sense is refused, in Python and on the command line, and the others go on.

One whose task was removed from the code is no mistake of the schedule: it fires, and its job says what it waits for.
"""

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.clock import SystemClock
from holdfast.errors import InvalidValue, TemplateNotFound
from holdfast.testing import ManualClock


class Shop:
    """An application with one good schedule, and the command line on its store."""

    def __init__(self, url):
        self.url = url
        self.clock = ManualClock(SystemClock().now())
        self.fired = 0
        self.hf = Holdfast(url, clock=self.clock)

        @self.hf.task(name="good")
        def good() -> None:
            self.fired += 1

        self.good = good
        self.hf.schedule("good", good, every=60, overlap="allow")

    def let_a_minute_pass(self) -> None:
        self.clock.advance(60)
        self.hf.work(concurrency=1, until_idle=True)

    def run(self, *words):
        """Run a command while the application is closed: some stores have one process."""
        self.hf.close()
        return CliRunner().invoke(cli, words, env={"HOLDFAST_STORE": self.url})


@pytest.fixture(params=["wal", "sqlite"])
def shop(request, tmp_path):
    shop = Shop(f"{request.param}:{tmp_path / 'jobs'}")
    yield shop
    shop.hf.close()


@pytest.mark.parametrize(
    ("options", "words", "code", "said"),
    [
        ({"cron": "0 0 30 2 *"}, ("--cron", "0 0 30 2 *"), 2, "fits no day"),
        ({"every": 60, "timezone": "Mars/Olympus"}, ("--every", "60", "--timezone", "Mars/Olympus"), 2, "Mars/Olympus"),
        ({"every": -60}, ("--every", "-60"), 2, "-60"),
    ],
    ids=["30 February", "unknown zone", "negative interval"],
)
def test_what_can_never_fire_is_refused_and_the_others_fire(shop, options, words, code, said):
    with pytest.raises(InvalidValue, match=said):
        shop.hf.schedule("bad", shop.good, **options)
    told = shop.run("schedules", "add", "bad", "--task", "good", *words)
    assert (told.exit_code, said in told.stderr) == (code, True), told.stderr
    assert [schedule.name for schedule in shop.hf.schedules()] == ["good"]
    shop.let_a_minute_pass()
    assert shop.fired == 1


def test_a_template_that_does_not_exist_is_named_and_the_others_fire(shop):
    gone = shop.hf.template("gone", shop.good)
    gone.delete()
    with pytest.raises(TemplateNotFound, match="template"):
        shop.hf.schedule("bad", gone, every=60)
    told = shop.run("schedules", "add", "bad", "--template", "gone", "--every", "60")
    assert (told.exit_code, "gone" in told.stderr) == (3, True)
    shop.let_a_minute_pass()
    assert shop.fired == 1


def test_the_schedule_of_a_removed_task_fires_and_its_job_says_what_it_waits_for(shop):
    shop.hf.schedule("old", "removed.task", every=60)
    for minute in range(1, 4):
        shop.let_a_minute_pass()
        assert shop.fired == minute
    (waiting,) = shop.hf.jobs(status="QUEUED", task="removed.task")
    assert shop.hf.schedules()[1].record().fires == 3  # the later ones were skipped: the first is not over
    assert waiting.explain().code == "no_worker"
    told = shop.run("explain", waiting.id)
    assert (told.exit_code, "no live worker knows task removed.task" in told.stdout) == (0, True), told.stdout
