"""Holdfast: crash-safe background jobs, cron and durable workflows for Python."""

__version__ = "0.1.0"
