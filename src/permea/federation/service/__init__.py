"""The HTTP service of a federation, and how it is deployed."""
