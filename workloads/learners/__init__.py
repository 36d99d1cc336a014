"""Learning problems: a torch module, the noisy quadratic, or timing only.

Read `quadratic` first (no torch), then `torch_learner`.
"""
