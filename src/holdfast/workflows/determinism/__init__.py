"""What keeps code replayable: what it may not do, how that is found, how it is held against a history."""
