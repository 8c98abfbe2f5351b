"""Webhooks on their way out: one try of one delivery, and the courier that claims, sends and records them.

Nothing here is on the way of a job: runs end whether deliveries arrive or not.
"""
