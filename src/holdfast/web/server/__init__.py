"""The process and its port: start, connections, HTTP/1.1 and TLS."""
