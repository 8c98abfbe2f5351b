"""The nouns: frozen records, commands, events and answers. Knows no store, clock, thread or file.

A record is the fold of its events; an event carries every computed value; a command may be sent again.
"""
