"""Records as programs read them: the one choice of what is shown of a thing, for HTTP and for `-o json`.

A row of a list has no payload, only how it begins; one thing whole has everything. Nothing here is laid out for people.
"""
