"""The service of a federation: its queue, its configuration files and its deployment."""
