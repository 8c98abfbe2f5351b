"""Handles on what a store keeps: jobs, groups, queues, schedules, templates, reservations, webhooks, artifacts."""
