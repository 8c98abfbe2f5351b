"""Tasks: how a function becomes one, its options and typed payloads, and how it is run here and now."""
