"""Adapters to web frameworks, nothing else: each is imported by its own name, and only where its framework is."""
