"""What a run leaves behind. Read `trace` first, then `tables`, `summary`, `store`."""
