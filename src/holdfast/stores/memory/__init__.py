"""`memory:` and the tables it is made of, which `dir:` and `wal:` share."""
