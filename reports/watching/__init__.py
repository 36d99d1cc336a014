"""Predicted against measured progress of a real run while it runs: `paceline train --watch`.

`predict_runs` makes the predictions, and `run_watch` compares the counters of a run with them.
"""
