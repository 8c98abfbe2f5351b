"""Workflows of an application: declared, started, and instances of them looked at and spoken to."""
