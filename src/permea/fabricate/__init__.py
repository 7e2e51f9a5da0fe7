"""Fabricated rows and tables: what may leave instead of the data."""
