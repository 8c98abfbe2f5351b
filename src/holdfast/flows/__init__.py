"""Workflows: how people write them, and how a turn of one is run and replayed. Knows no store and no worker.

    definitions  what a workflow is: function, versions, options; `Workflow[P, R]`
    workflows    `Workflow[P, R]` and `Activity[P, R]`, typed by their functions
    face         what its code may call: step, signal, decision, now, uuid, …
    loop         asyncio without a world; `forbidden` says what is refused, and what to use instead
    execution    one execution between two events: what came in, what was asked for; its parts:
                 `program` the code that runs, `gate` whether it may still ask, `opened` what it waits for,
                 `inline` its steps, `mailboxes` its signals, `published` what it says of itself, `outbox` its next
                 commit, `verdict` how it ended
    matching     does the code still do what the history says? the first difference, on both sides
    turn         one batch of messages in, one commit out; `messages` says which event each becomes
    ending       what goes with an execution that ends, with or without its code; `forking` begins one from a history
    residents    executions that stay in this process between their turns

A turn is a function of history, messages, time and code. The order that matters: one event is recorded, delivered, and
the loop run until nothing is ready, before the next one is looked at. Replay does the same with recorded events, so
that both see the same things in the same order.
"""
