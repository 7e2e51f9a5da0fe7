"""Attacks, density difference and an empirical lower bound on epsilon."""
