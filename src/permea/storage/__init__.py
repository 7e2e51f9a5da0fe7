"""Save and load fitted models: arrays as safetensors, everything else as JSON, never pickle.

A file is a safetensors container with a manifest: schema version, object tree, SHA-256 sums of the
tensors, and an attestation for each certificate that binds it to all of these and may carry a
signature of its owner (`permea.storage.model_file`). A file may come from anybody. Which classes
it may hold, and what their fields may be, is a fixed list (`permea.storage.classes`); sizes, types
and nesting are limited before anything is allocated (`permea.storage.container`); and nothing is
built before all of it was checked.
"""

from permea.storage.container import StorageError
from permea.storage.model_file import SCHEMA, load, read_manifest, save

__all__ = ["SCHEMA", "StorageError", "load", "read_manifest", "save"]
