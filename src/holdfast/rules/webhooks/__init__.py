"""Webhooks: where they may point, what is owed to them, and what is sent."""
