"""Reservations: a queue kept to oneself, also by a direct run."""
