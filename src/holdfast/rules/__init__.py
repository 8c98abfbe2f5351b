"""The verbs, pure: what a command does to the state, and what an event makes of it.

`decide` turns (state, command, now) into events and an answer; `fold` turns events into changed records. Nothing here
reads a clock, draws a number, opens a file or logs: time and chance come in as values, the state as look-ups.
"""
