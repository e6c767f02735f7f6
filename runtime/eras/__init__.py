"""Eras: how models look in one family of protocol revisions.

Handlers and the lifecycle speak models and know no revision. An era turns models into its
revision's JSON and back and checks its request metadata. No other code may test for a revision.
"""
