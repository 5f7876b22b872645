"""Models behind an address: the client that asks a server, and the vectors that it answers with."""
