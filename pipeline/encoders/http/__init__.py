"""Served models: the client that asks a server, and the vectors that it answers with."""
