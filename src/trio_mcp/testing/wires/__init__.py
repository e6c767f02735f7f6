"""Wires with faults on a schedule: streams, an HTTP server, a relay."""
