"""Both parts of the demo, one after the other: each is played, judged and shown. True: everything was as promised."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.demo import display, scenario, verify
from holdfast.cli.demo.order import display as order_display
from holdfast.cli.demo.order import scenario as order_scenario
from holdfast.cli.demo.order import verify as order_verify
from holdfast.cli.render.output import Output


def play(place: Path, plan: scenario.Plan, within_s: float, out: Output) -> bool:
    """Play the order on a store of its own in this place, then the jobs as planned. Raises as `scenario.play` does."""
    scenario.demand_playable(plan)
    told = order_scenario.play(
        order_scenario.Plan(f"sqlite:{place / 'order.db'}", place / "steps.jsonl"), order_display.Told()
    )
    problems = order_verify.judge(told)
    if out.form == "table":
        order_display.tell(told, problems, out)
    with display.stage(plan.url) as shown:
        evidence = scenario.play(plan, shown)
    verdict = verify.judge(evidence, within_s)
    if out.form == "table":
        display.tell(evidence, verdict, out)
    well = not problems and not verdict.problems
    if out.form == "json":
        parts = {"workflow": order_display.record_of(told, problems), "jobs": display.record_of(evidence, verdict)}
        out.record({"well": well, **parts}, list)
    return well
