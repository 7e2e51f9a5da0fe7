"""Federations over Flower processes."""
