"""How fast this library is: ``python -m benchmarks``.

| part | what it is |
| --- | --- |
| ``plan.py`` | how much of everything: the whole run, and the quick one |
| ``contenders.py`` | who is measured, on which wire, and who is not and why |
| ``peers.py`` | the environments of the other SDKs, with pinned versions |
| ``servers/`` | a program for each contender, all with the same tools |
| ``load/`` | what drives the servers: channels, HTTP, ``wrk`` |
| ``measures/`` | what is measured: throughput, crowds in flight, requests in sequence, start-up |
| ``samples.py`` | what was measured, as medians and ratios within a round |
| ``report/`` | JSON, Markdown, plots, the summary in ``README.md`` |

By themselves stand ``overload.py`` and ``probe.py``.
"""
