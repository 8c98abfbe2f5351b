"""The awaitable face of an application: the same names, a thread hop each."""
