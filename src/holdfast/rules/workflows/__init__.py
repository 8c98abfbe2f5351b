"""Workflow instances: their verbs, turns, messages, sessions and fold."""
