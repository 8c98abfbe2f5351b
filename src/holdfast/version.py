"""The version of this code. A leaf: a worker tells it, and may be at work where no package is installed."""

__version__ = "0.1.0"
