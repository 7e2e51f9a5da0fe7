"""The wall: noise, privacy units, certificates and the ledger."""
