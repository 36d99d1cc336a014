"""The torch.distributed interpreter and everything that a real run needs.

Read `rank.interpreter` first, then `local.launch`, `transports` and `supervision`.
"""
