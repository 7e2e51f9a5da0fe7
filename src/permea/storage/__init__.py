"""Save and load fitted models: arrays as safetensors, everything else as JSON, never pickle.

A file is a safetensors container with a manifest: schema version, object tree, SHA-256 sums of the
tensors, and the certificates, each bound to all of these and signed if the owner wished
(`permea.storage.model_file`). A file may come from an untrusted source. Which classes it may hold,
and what their fields may be, is a fixed list (`permea.storage.classes`); sizes, types and nesting
are limited before anything is allocated (`permea.storage.container`); and nothing is built before
all of it was checked.
"""

from permea.storage.classes import register_family
from permea.storage.container import StorageError
from permea.storage.listing import Contents, contents
from permea.storage.model_file import SCHEMA, load, save
from permea.storage.onnx_export import to_onnx

__all__ = [
    "SCHEMA",
    "Contents",
    "StorageError",
    "contents",
    "load",
    "register_family",
    "save",
    "to_onnx",
]
