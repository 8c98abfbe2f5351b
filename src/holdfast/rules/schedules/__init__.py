"""Schedules and templates: what may be one, when it fires, and what then happens."""
