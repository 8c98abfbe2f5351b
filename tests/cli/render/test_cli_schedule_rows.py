"""What a list says of a schedule's next fire."""

import msgspec
import pytest

from holdfast.cli.render import schedule_rows
from holdfast.cli.render.terminal import Screen
from holdfast.model.schedules import Schedule
from holdfast.model.times import Timestamp, later

PIPE = Screen(
    is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=True, width=200
)
NOW = Timestamp("2026-01-01T00:00:00.000000Z")


@pytest.mark.parametrize(("left_s", "said"), [(90, "next in 1m"), (0.5, "next in 0s"), (-7200, "due for 2h")])
def test_a_next_fire_lies_ahead_or_is_due(left_s, said):
    fire = later(NOW, left_s)
    made = Schedule(schedule_id="s", name="n", created_at=NOW, job_type="t", cron_expression="@daily")
    table = schedule_rows.schedule_table(
        [msgspec.structs.replace(made, next_fire_at=fire, next_trigger_at=fire)], {}, NOW, PIPE
    )
    assert said in table[-1]


def test_a_schedule_whose_zone_is_not_known_here_is_listed_and_shown_all_the_same():
    lost = Schedule(
        schedule_id="s", name="n", created_at=NOW, job_type="t", cron_expression="@daily", timezone="Mars/Olympus"
    )
    fire = later(NOW, 90)
    lost = msgspec.structs.replace(lost, next_fire_at=fire, next_trigger_at=fire)
    assert "cannot be planned: timezone: 'Mars/Olympus'" in schedule_rows.schedule_table([lost], {}, NOW, PIPE)[-1]
    assert schedule_rows.to_come(lost, NOW) == []
    assert "cannot be planned" in schedule_rows.schedule_page(lost, {}, [], NOW, PIPE)[0]
