"""What surrounds one call of a handler: its context, its output, its outcome."""
