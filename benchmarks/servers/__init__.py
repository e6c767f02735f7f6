"""The programs under measurement: one for each contender, all with the tools of ``ours.py``."""
