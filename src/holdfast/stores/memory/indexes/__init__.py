"""Indexes in memory: each answers one kind of look-up and changes with its tables."""
