"""What users write against: the `Holdfast` object, its tasks, and handles on their jobs.

Types payloads, makes ids, builds commands, gives handles. Decides nothing: every call ends in a command to the engine.
"""
