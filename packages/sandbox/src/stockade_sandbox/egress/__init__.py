"""The only way out of a sandbox: a proxy that passes HTTP and TLS to names on a list. docs/network.md says what holds.

rules.py     which names and ports       http.py    reading heads, strictly
resolve.py   a name to public addresses  relay.py   bodies and tunnels, bounded and counted
tls.py       the name in a ClientHello   proxy.py   a connection, from its first byte to its event
exchange.py  a request while it is served     upstream.py  the user's own proxy as the next hop
names.py     addresses inside that stand for names, for programs that know of no proxy

credentials.py   secrets that the proxy puts in: docs/credentials.md   authority.py, tls_streams.py   TLS that ends here
trust.py     whom to trust beside this machine's authorities
"""
