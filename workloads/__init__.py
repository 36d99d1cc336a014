"""What is trained: layouts, data, learning problems."""
