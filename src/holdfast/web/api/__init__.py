"""The public API: nouns and verbs over HTTP, as one table of endpoints.

Each noun's module says what its endpoints take and answer, and how a request becomes a command or a look-up: the same
ones that the command line uses. No rule is decided here. The table is what is served, and what the OpenAPI document is
made from, so the two cannot differ.
"""
