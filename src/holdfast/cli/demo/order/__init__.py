"""The demo's first part: an order, a workflow of six steps, whose worker is killed with SIGKILL in the fourth.

`workflow` is what the worker runs, `scenario` plays it, `verify` judges the evidence, `display` shows it.
"""
