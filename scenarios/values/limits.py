"""The largest sizes and counts in a scenario and in the options of the commands.

Every count that becomes a loop or an allocation has its limit here, so that a wrong number is rejected with one
sentence instead of filling the memory. The limits are far above the needs of a useful scenario. Limits on networks are
in `paceline.topologies`, with the builders of the graphs.
"""

from __future__ import annotations

# --- the text of a scenario

MOST_CHARACTERS = 8_000_000
"""characters of a scenario file or of a value on the command line"""
MOST_ITEMS = 100_000
"""values in all lists and mappings of a scenario together"""
MOST_KEYS = 1_000
"""keys of one mapping; no section has more than about thirty"""
DEEPEST = 100
"""lists and mappings inside each other"""
LONGEST_TEXT = 4096
"""characters of one text; no path is longer on Linux"""
MOST_REPORTED = 100
"""mistakes that a message lists; it counts the others"""

# --- numbers

LARGEST = 10**15
"""largest number: floats represent every integer up to here, and products of two numbers still fit float32"""
MOST_UNITS, FEWEST_UNITS = 1e18, 1e-18
"""range of quantities in seconds, bytes or bytes per second, so that quotients of two are finite and above 0"""
LONGEST_NAME = 100
"""characters; names become parts of file names, which have 255 bytes at most"""

# --- counts

MOST_WORKERS = 100_000
"""more than any machine has"""
MOST_ALGORITHMS = 1_000
"""algorithms of one scenario; each is compared with all others"""
MOST_RUNS = 10_000
"""runs of one scenario (algorithms × seeds), since all are planned before the first one starts"""
MOST_POINTS = 10_000
"""points of a sweep"""
MOST_SWEPT_RUNS = 100_000
"""runs of a sweep (points × algorithms × seeds)"""
MOST_JOBS = 1024
"""processes of a sweep at a time"""
MOST_THREADS = 1024
"""torch threads of each worker; OpenMP allocates memory for each before the first one starts"""
MOST_PREFETCHED = 10_000
"""batches read ahead, which are in memory"""
MOST_STRIPES = 100_000
"""servers that a file is striped over"""
