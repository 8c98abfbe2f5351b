"""Workflows: how people write them, and how a turn of one is run and replayed. Knows no store and no worker.

    api          what people write workflows with: `definitions` what a workflow is, `workflow` the typed
                 `Workflow[P, R]` and `Activity[P, R]`, `context` what its code may call: step, signal, now, uuid, …
    runtime      `event_loop` asyncio without a world; `execution` one execution between two events: what came in, what
                 was asked for; its parts: `user_code` the code that runs, `command_gate` whether it may still ask,
                 `pending_operations` what it waits for, `inline_steps` its steps, `signals` its signals,
                 `published_state` what it says of itself, `outbox` its next commit, `result` how it ended;
                 `turn` one batch of messages in, one commit out, where `message_events` says which event each becomes;
                 `completion` what goes with an execution that ends, with or without its code; `execution_cache`
                 executions that stay in this process between their turns
    determinism  `restrictions` what is refused, and what to use instead; `history_match` does the code still do what
                 the history says? the first difference, on both sides
    replay       `check` code against recorded histories; `fork` begins an execution from a history
    provider     the storage face

A turn is a function of history, messages, time and code. The order that matters: one event is recorded, delivered, and
the loop run until nothing is ready, before the next one is looked at. Replay does the same with recorded events, so
that both see the same things in the same order.
"""
