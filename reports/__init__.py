"""Answers of commands as tables, charts and sentences (`blocks`), and their renderers (`text`, `html`, `png`).

Read `blocks` first. The answer of a command is made in the module that ends with `_answer`.
"""
