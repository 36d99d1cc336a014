"""The any-order interpreter: no clock, a chooser decides who moves next.

Read `anyorder` first, then `moves` (who chooses), `mail` (messages under way), `replay` (a real run again, bit for
bit), `reentry` (stop, and enter again from the states), `hidden_state` (what a checkpoint would lose) and `strategies`
(Hypothesis as the chooser).
"""
