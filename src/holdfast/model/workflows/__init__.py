"""The nouns of workflows: instances, histories and their events, work items, decisions, commands."""
