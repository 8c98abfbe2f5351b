"""The demo's first part: an order, a workflow of six steps, whose worker is killed with SIGKILL in the fourth.

`flow` is what the worker runs, `story` plays it, `proof` judges the evidence, `stage` shows it.
"""
