"""Predicted against measured progress of a real run while it runs: `paceline train --watch`.

Read `run_watch` first, then `predicted_progress` and `slow_ranks`; `predict_runs` makes the predictions.
"""
