"""How a command reaches its store: which one, what may be seen of it, ids as people type them, changes."""
