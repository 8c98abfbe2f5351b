"""What Django finds under `manage.py`."""
