"""What the files of `dir:` are called, what they say, and how they are written. Decides nothing."""
