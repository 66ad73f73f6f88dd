"""The only way out of a sandbox: a proxy that passes HTTP and TLS to names on a list. docs/network.md says what holds.

rules.py     which names and ports       http.py    reading heads, strictly
resolve.py   a name to public addresses  relay.py   bodies and tunnels, bounded and counted
tls.py       the name in a ClientHello   proxy.py   a connection, from its first byte to its event
"""
