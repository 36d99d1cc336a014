"""The torch.distributed interpreter. Read `interpreter` first, then `transport`, then `launch`."""
