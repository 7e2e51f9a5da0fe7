"""Take model files apart, change anything, and make the checksums fit again.

It is written from the description of the format and shares no code with the library, but for
Certificate and signing keys where a test wants real ones.
"""

import copy
import hashlib
import json
from contextlib import suppress

import numpy as np

DTYPES = {
    "BOOL": "|b1", "I8": "|i1", "U8": "|u1", "I16": "<i2", "U16": "<u2", "I32": "<i4",
    "U32": "<u4", "I64": "<i8", "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def canonical(values):
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Forge:
    """A model file in parts."""

    def __init__(self, content):
        length = int.from_bytes(content[:8], "little")
        self.header = json.loads(content[8 : 8 + length])
        metadata = self.header.pop("__metadata__")
        self.manifest = json.loads(metadata["permea"])
        self.model = json.loads(metadata["model"])
        data = content[8 + length :]
        self.tensors = {}
        for name, entry in self.header.items():
            start, end = entry["data_offsets"]
            array = np.frombuffer(data[start:end], DTYPES[entry["dtype"]])
            self.tensors[name] = array.reshape(entry["shape"]).copy()

    def copy(self):
        return copy.deepcopy(self)

    def fix_checksums(self):
        """Write checksums of the tensors and of the object tree that fit, as anybody can."""
        self.manifest["model"] = sha256(json.dumps(self.model).encode())
        self.manifest["tensors"] = {
            name: sha256(f"{a.dtype.str}{a.shape}".encode() + a.tobytes())
            for name, a in self.tensors.items()
        }
        return self

    def bind_certificates(self, key=None):
        """Bind the certificates to what is in the file now; sign them with a key of one's own."""
        self.fix_checksums()
        content = {"tensors": self.manifest["tensors"], "model": self.manifest["model"]}
        weights = sha256(canonical(content))
        for number, entry in enumerate(self.manifest["certificates"]):
            values = {"certificate": entry["certificate"], "number": number, "weights": weights}
            message = canonical(values)
            entry["sha256"] = sha256(message)
            entry["signature"] = None
            if key is not None:
                entry["signature"] = key.sign(message, purpose="certificate").to_dict()
        return self

    def to_bytes(self, change_header=None):
        text = json.dumps(self.manifest)
        texts = {"permea": text, "model": json.dumps(self.model), "sha256": sha256(text.encode())}
        header = {"__metadata__": texts}
        position, parts = 0, []
        for name, array in self.tensors.items():
            data = array.tobytes()
            header[name] = {
                "dtype": NAMES[array.dtype.str],
                "shape": list(array.shape),
                "data_offsets": [position, position + len(data)],
            }
            position += len(data)
            parts.append(data)
        if change_header is not None:
            change_header(header)
        encoded = json.dumps(header).encode()
        return len(encoded).to_bytes(8, "little") + encoded + b"".join(parts)

    def write(self, path):
        path.write_bytes(self.to_bytes())
        return path


def nodes(tree, path=()):
    """Paths of all values of a JSON tree."""
    yield path
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from nodes(value, (*path, key))


def lookup(tree, path):
    for key in path:
        tree = tree[key]
    return tree


ODD_VALUES = [
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**63, 10**30, -0.5, 1e-320, 1e308, -1e308, "", "x",
    "auto", "t0", "\u001b[31m", "=cmd|'/C calc'!A0", "x" * 5000, [], {}, [1], {"list": []},
    {"list": [1, "a", None]}, {"tuple": []}, {"tuple": [1.0, 2.0]}, {"array": "t0"},
    {"array": "t1"}, {"fortran": "t2"}, {"array": "t999"}, {"array": 3}, {"words": "t0"},
    {"objects": "t0"}, {"float": "nan"}, {"float": "inf"}, {"float": "1"}, {"dict": {}},
    {"certificate": 0}, {"certificate": 99}, {"certificate": -1}, {"certificate": True},
    {"class": "Spool"}, {"class": "PartyNode", "path": "/tmp/fifo"}, {"class": "Popen"},
    {"class": "permea.federation.service.deploy:Launcher"}, {"class": "Privacy", "epsilon": 0.1},
    {"class": "KernelAffineHullMachine", "n_components": 1, "tol": 0.1}, {"class": []},
]  # fmt: skip
"""What a field is changed to."""


class Mutator:
    """Random changes of one model file, from a seed."""

    def __init__(self, content, other, seed):
        self.random = np.random.default_rng(seed)
        self.content = content
        self.original = Forge(content)
        self.other = Forge(other)

    def pick(self, values):
        values = list(values)
        return values[self.random.integers(len(values))]

    # ---- bytes -----------------------------------------------------------------------------------

    def damaged(self):
        """The file with its bytes cut, flipped, moved or overwritten."""
        data, random = bytearray(self.content), self.random
        place = int(random.integers(len(data)))
        match self.pick(["cut", "flip", "flip", "flip", "drop", "insert", "zeros", "swap", "tail"]):
            case "cut":
                del data[place:]
            case "flip":
                for _ in range(int(random.integers(1, 4))):
                    data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            case "drop":
                del data[place : place + int(random.integers(1, 40))]
            case "insert":
                data[place:place] = random.bytes(int(random.integers(1, 40)))
            case "zeros":
                data[place : place + 16] = bytes(len(data[place : place + 16]))
            case "swap":
                other = int(random.integers(len(data)))
                a, b = data[place : place + 8], data[other : other + 8]
                data[place : place + 8], data[other : other + 8] = b, a
            case "tail":
                data += random.bytes(int(random.integers(1, 100)))
        return bytes(data)

    def odd_header(self):
        """Right checksums under a header that describes other tensors."""
        forged = self.original.copy()

        def change(header):
            name = self.pick(forged.tensors)
            entry = header[name]
            match self.pick(["dtype", "shape", "shape", "offsets", "name", "missing", "extra"]):
                case "dtype":
                    entry["dtype"] = self.pick([*DTYPES, "BF16", "<U300000000", "O", 3, None])
                case "shape":
                    entry["shape"] = self.pick(
                        [[], [-1], [2**40], [0, 2**62], [1] * 40, None, "x", [1.5], [True],
                         entry["shape"][::-1], [*entry["shape"], 1]]
                    )  # fmt: skip
                case "offsets":
                    a, b = entry["data_offsets"]
                    entry["data_offsets"] = self.pick(
                        [[b, a], [a, b + 8], [a + 8, b], [0, 2**60], [-8, b], [a], None, [a, b, b]]
                    )
                case "name":
                    header["t0 "] = header.pop(name)
                case "missing":
                    del header[name]
                case "extra":
                    header["x"] = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}

        return forged.to_bytes(change)

    # ---- meaning ---------------------------------------------------------------------------------

    def edited_tree(self, forged):
        """Another value, class, field or order somewhere in the object tree."""
        tree = forged.model
        path = self.pick(p for p in nodes(tree) if p)
        parent, key = lookup(tree, path[:-1]), path[-1]
        kinds = ["odd", "odd", "odd", "remove", "move", "class", "add", "number", "twice"]
        match self.pick(kinds):
            case "odd":
                parent[key] = copy.deepcopy(self.pick(ODD_VALUES))
            case "remove":
                del parent[key]
            case "move":
                other = self.pick(nodes(tree))
                parent[key] = copy.deepcopy(lookup(tree, other))
            case "class":
                objects = [p for p in nodes(tree) if p and p[-1] == "class"]
                names = {lookup(tree, p) for p in objects}
                place = self.pick(objects)
                lookup(tree, place[:-1])["class"] = self.pick(
                    [*names, "Spool", "Ledger", "subprocess:Popen", "builtins:eval", "SourceModel"]
                )
            case "add":
                objects = [lookup(tree, p[:-1]) for p in nodes(tree) if p and p[-1] == "class"]
                name = self.pick(["__class__", "n_features_in_", "__dict__", "predict", "x"])
                self.pick(objects)[name] = copy.deepcopy(self.pick(ODD_VALUES))
            case "number":
                numbers = [
                    p for p in nodes(tree)
                    if p and isinstance(lookup(tree, p), int | float)
                ]  # fmt: skip
                place = self.pick(numbers)
                old = lookup(tree, place)
                lookup(tree, place[:-1])[place[-1]] = self.pick(
                    [old + 1, -old, old * 1000, float(old), not old, str(old), old * 1e300]
                )
            case "twice":
                lists = [p for p in nodes(tree) if isinstance(lookup(tree, p), list)]
                chosen = lookup(tree, self.pick(lists))
                if chosen:
                    chosen.append(copy.deepcopy(self.pick(chosen)))

    def edited_tensor(self, forged):
        """Other numbers, types or shapes in a tensor."""
        name = self.pick(forged.tensors)
        array = forged.tensors[name]
        kinds = ["nan", "nan", "inf", "nudge", "huge", "zero", "dtype", "shape", "rows", "swap",
                 "bytes", "all nan", "negative"]  # fmt: skip
        kind = self.pick(kinds)
        if array.size == 0 and kind not in ("dtype", "swap"):
            kind = "swap"
        flat = array.reshape(-1)
        place = int(self.random.integers(max(flat.size, 1)))
        match kind:
            case "nan" | "inf" | "huge" | "all nan":
                value = {"nan": np.nan, "inf": -np.inf, "huge": 1e300, "all nan": np.nan}[kind]
                floating = flat.dtype.kind == "f"
                with np.errstate(over="ignore"):
                    flat[... if kind == "all nan" else place] = value if floating else 1
            case "nudge":
                flat[place] = flat[place] + 1 if flat.dtype.kind != "b" else not flat[place]
            case "zero":
                flat[...] = 0
            case "negative":
                if flat.dtype.kind in "fi":
                    flat[...] = -flat
            case "bytes":
                flat.view(np.uint8)[...] = self.random.integers(0, 256, flat.nbytes)
            case "dtype":
                dtype = self.pick(["<f4", "<f8", "<i8", "|b1", "<u4", "<f2", "|u1"])
                with np.errstate(all="ignore"):
                    forged.tensors[name] = np.nan_to_num(array).astype(dtype)
            case "shape":
                forged.tensors[name] = self.pick(
                    [array.reshape(-1), array[None], array.T.copy(), array.reshape(-1, 1)]
                )
            case "rows":
                forged.tensors[name] = self.pick(
                    [array[:-1].copy(), np.concatenate([array, array[:1]]), array[:0].copy()]
                ) if array.ndim else array  # fmt: skip
            case "swap":
                other = self.pick(forged.tensors)
                both = forged.tensors[other], forged.tensors[name]
                forged.tensors[name], forged.tensors[other] = both

    def edited_certificate(self, forged):
        """A better promise, another model's, or something that is none."""
        entries = forged.manifest["certificates"]
        if not entries:
            return
        entry = self.pick(entries)
        certificate = entry["certificate"]
        kinds = ["epsilon", "graft", "odd", "odd", "remove", "add", "order", "drop", "signature",
                 "signature", "private"]  # fmt: skip
        match self.pick(kinds):
            case "epsilon":
                certificate["privacy"]["epsilon"] = certificate["record_epsilon"] = 0.01
            case "graft":
                others = self.other.manifest["certificates"]
                entry.update(copy.deepcopy(self.pick(others)) if others else {})
            case "odd":
                path = self.pick(p for p in nodes(certificate) if p)
                lookup(certificate, path[:-1])[path[-1]] = copy.deepcopy(self.pick(ODD_VALUES))
            case "remove":
                del certificate[self.pick(certificate)]
            case "add":
                certificate[self.pick(["signer", "x"])] = self.pick(["clinic", "", None])
            case "order":
                entries.reverse()
            case "drop":
                entries.remove(entry)
            case "signature":
                entry["signature"] = self.pick(
                    [None, {}, "x", {"key": "", "signature": ""},
                     {"key": "A" * 43 + "=", "signature": "A" * 86 + "=="},
                     {"key": 1, "signature": 2}]
                )  # fmt: skip
            case "private":
                certificate["is_private"] = not certificate["is_private"]
                certificate["seeded"] = not certificate["seeded"]

    def edited_manifest(self, forged):
        """Other entries of the manifest itself."""
        path = self.pick([("schema",), ("permea",), ("tensors",), ("certificates",), ("model",),
                          ("tensors", self.pick(forged.tensors))])  # fmt: skip
        parent = lookup(forged.manifest, path[:-1])
        if self.random.random() < 0.3:
            del parent[path[-1]]
        else:
            parent[path[-1]] = copy.deepcopy(self.pick(ODD_VALUES))

    def edited(self, *, rebound):
        """One to three changes of meaning with checksums that fit, and perhaps new certificates."""
        forged = self.original.copy()
        edits = [self.edited_tree, self.edited_tree, self.edited_tensor, self.edited_certificate]
        for _ in range(int(self.random.integers(1, 4))):
            with suppress(TypeError, ValueError, KeyError, OverflowError):  # nothing left to edit
                self.pick(edits)(forged)
        forged.fix_checksums()
        if rebound:
            forged.bind_certificates()
        elif self.random.random() < 0.1:
            self.edited_manifest(forged)
        return forged.to_bytes()
