"""Both parts of the demo, one after the other: each is played, judged and shown. True: everything was as promised."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.demo import proof, stage, story
from holdfast.cli.demo.order import proof as orderproof
from holdfast.cli.demo.order import stage as orderstage
from holdfast.cli.demo.order import story as orderstory
from holdfast.cli.output import Output


def play(place: Path, plan: story.Plan, within_s: float, out: Output) -> bool:
    """Play the order on a store of its own in this place, then the jobs as planned. Raises as `story.play` does."""
    story.demand_playable(plan)
    told = orderstory.play(orderstory.Plan(f"sqlite:{place / 'order.db'}", place / "steps.jsonl"), orderstage.Told())
    problems = orderproof.judge(told)
    if out.form == "table":
        orderstage.tell(told, problems, out)
    with stage.stage(plan.url) as shown:
        evidence = story.play(plan, shown)
    verdict = proof.judge(evidence, within_s)
    if out.form == "table":
        stage.tell(evidence, verdict, out)
    well = not problems and not verdict.problems
    if out.form == "json":
        parts = {"workflow": orderstage.record_of(told, problems), "jobs": stage.record_of(evidence, verdict)}
        out.record({"well": well, **parts}, list)
    return well
