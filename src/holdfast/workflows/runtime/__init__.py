"""How an execution runs: its loop, its turns, what it waits for, how it ends."""
