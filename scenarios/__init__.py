"""The scenario: schema, loading with every mistake reported at once, and the scenario files themselves."""
