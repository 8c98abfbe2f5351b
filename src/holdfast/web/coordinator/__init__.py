"""What one coordinator keeps in memory: who waits, who works, what is counted and who is let in."""
