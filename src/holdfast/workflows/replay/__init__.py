"""Histories used again: checked, exported, imported, forked."""
