"""Who may do, see and say what."""
