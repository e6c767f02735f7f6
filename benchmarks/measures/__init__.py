"""What is measured. Each measure takes a contender and yields samples, against a fresh server.

| module | what it tells |
| --- | --- |
| ``throughput.py`` | calls per second, latency and the server's CPU time, some in flight |
| ``crowd.py`` | many in flight: memory, a probe among them; one is cancelled, or all at once |
| ``sequence.py`` | many one after the other: time, and whether memory stays |
| ``startup.py`` | seconds until a server answers, and of the imports |
"""
