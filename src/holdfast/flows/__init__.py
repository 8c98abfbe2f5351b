"""Workflows: how people write them, and how a turn of one is run and replayed. Knows no store and no worker.

    definitions  what a workflow is: function, versions, options; `Workflow[P, R]`
    face         what its code may call: step, signal, decision, now, uuid, …
    loop         asyncio without a world; `forbidden` says what is refused, and what to use instead
    execution    one execution between two events: what is open, what was read, what was asked for
    matching     does the code still do what the history says? the first difference, on both sides
    turn         one batch of messages in, one commit out

A turn is a function of history, messages, time and code. The order that matters: one event is recorded, delivered, and
the loop run until nothing is ready, before the next one is looked at. Replay does the same with recorded events, so
that both see the same things in the same order.
"""
