"""What `http:` stores and remote workers ask for: commands, look-ups, blobs, the feed."""
