"""What every request passes: checks of its head, access, limits, time, compression."""
