"""Parties keep their data; a global classifier needs their distances only."""
