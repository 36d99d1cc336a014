"""Messages and collectives between ranks: through shared memory inside a host, by gloo or NCCL between hosts.

Read `mail` first (messages), then `shared_collectives` and `collectives`.
"""
