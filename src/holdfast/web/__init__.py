"""The coordinator: one authority over one store, offered to other processes and hosts by HTTP.

`serving` opens the store and runs the server; `routes` says what there is; each handler is a few lines around the
engine. Rules are not met here again: who may do what is `rules.access`, everything else the engine decides. The order
of a request: host and origin, then access, then size, then decoding, then rights, then the engine.
"""
