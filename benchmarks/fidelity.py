"""Predicts configurations on this machine, measures them, and reports the errors: `paceline fidelity`.

    python benchmarks/fidelity.py --quick             # three methods in each setting, one seed: about five minutes
    python benchmarks/fidelity.py                     # the standard set, two seeds: about twenty minutes
    python benchmarks/fidelity.py --complete          # all configurations, three seeds: hours
    python benchmarks/fidelity.py --only paced        # one group; --only may be repeated
    python benchmarks/fidelity.py --list              # the settings

The options are those of the command; the results are in runs/fidelity, or in --out.
"""

from __future__ import annotations

import sys

from paceline.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["fidelity"]
    main()
