"""Groups: their commands, what follows for them from others, and their fold."""
