"""The coordinator: one authority over one store, offered to other processes and hosts by HTTP.

`server.serving` opens the store and runs the server; `routes` says what there is; each handler is a few lines around
the engine. Rules are not met here again: who may do what is `rules.access.roles`, everything else the engine decides.
The order of a request: its head, its peer, host and origin, then access, then how much that may ask, then size, then
decoding, then rights, then the engine.
"""
