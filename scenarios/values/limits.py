"""The largest sizes and counts that a scenario and the options of the commands may ask for.

Every count that becomes a loop or an allocation has its limit here, so that a wrong number is refused in one sentence
instead of filling the memory. The limits are far above what a useful scenario needs. Limits on networks follow from
what the builders in `paceline.topologies` draw and stand there.
"""

from __future__ import annotations

# --- the text of a scenario

MOST_CHARACTERS = 8_000_000
"""of a scenario file or a value on the command line"""
MOST_ITEMS = 100_000
"""values in all lists and mappings of a scenario together"""
MOST_KEYS = 1_000
"""of one mapping; no section has more than some thirty"""
DEEPEST = 100
"""lists and mappings inside each other"""
LONGEST_TEXT = 4096
"""characters of one text; no path is longer on Linux"""
MOST_REPORTED = 100
"""mistakes that are listed; of more, the message says how many"""

# --- numbers

LARGEST = 10**15
"""of any number: a float holds every whole number up to here, and products of two still fit float32"""
MOST_UNITS, FEWEST_UNITS = 1e18, 1e-18
"""of a quantity in seconds, bytes or bytes per second, so that quotients of two are finite numbers above 0"""
LONGEST_NAME = 100
"""characters; names become parts of file names, which have 255 bytes at most"""

# --- counts

MOST_WORKERS = 100_000
"""more than any machine has"""
MOST_ALGORITHMS = 1_000
"""of one scenario; each is compared with all others"""
MOST_RUNS = 10_000
"""of one scenario (algorithms × seeds), since each is planned before the first one starts"""
MOST_POINTS = 10_000
"""of a sweep"""
MOST_SWEPT_RUNS = 100_000
"""of a sweep (points × algorithms × seeds)"""
MOST_JOBS = 1024
"""processes of a sweep at a time"""
MOST_THREADS = 1024
"""of each worker; OpenMP reserves memory for each before the first one starts"""
MOST_PREFETCHED = 10_000
"""batches read ahead, which lie in memory"""
MOST_STRIPES = 100_000
"""servers that a file lies on"""
