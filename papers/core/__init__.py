"""The types of claims, the rule of the verdicts, and the command that computes and prints them."""
