"""Model files: exact round trips, and clear words about everything that is wrong with a file."""

import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from storage_forge import Forge

import permea
from permea import (
    BayesianMembershipMapping,
    ConditionallyDeep,
    FuzzyAutoencoder,
    FuzzyClassifier,
    FuzzyModel,
    HullClassifier,
    KAHMClassifier,
    KernelAffineHullMachine,
    MembershipAutoencoder,
    MembershipClassifier,
    MembershipMapping,
    MomentClassifier,
    MomentRegressor,
    Privacy,
    ReconstructionClassifier,
    Schema,
    SourceModel,
    TransferClassifier,
    Wide,
    fabricate,
    fabricate_records,
    load,
    release,
    release_pair,
    save,
)
from permea.cli.table_model import TableClassifier, unit_privacy
from permea.information import Interpreter
from permea.models.features import (
    Chain,
    OrientedGradients,
    PublicNystrom,
    RandomFourier,
    ScaledIdentity,
    SideBySide,
)
from permea.privacy.signing import SigningKey, TrustedKeys
from permea.storage import StorageError
from permea.storage.classes import ROOTS, STORABLE
from permea.tables import Number
from permea.transfer.experts import ClassifierExpert, DensityExpert, SourceEnsemble

PRIVACY = Privacy(epsilon=4, delta=1e-5, domain=(0, 1))
RECORD = Privacy(epsilon=4, delta=1e-5, unit="record", domain=(0, 1))
COLUMNS = Privacy(epsilon=4, delta=1e-5, domain=((0,) * 4, (1,) * 4))


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    return random.random((60, 4)), np.repeat(["no", "yes", "maybe"], 20)


@pytest.fixture
def model(data):
    return KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY, branch_size=10).fit(*data)


@pytest.fixture
def path(model, tmp_path):
    return save(model, tmp_path / "model.permea")


def rewritten(path, change_metadata=None, change_tensors=None):
    with safe_open(path, framework="numpy") as container:
        metadata = container.metadata()
        tensors = {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118
    if change_metadata:
        change_metadata(metadata)
    if change_tensors:
        change_tensors(tensors)
    save_file(tensors, path, metadata=metadata)


# ---- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_is_exact(data, tmp_path, dtype):
    X, y = data
    clf = KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY).fit(X.astype(dtype), y)
    again = load(save(clf, tmp_path / "model.permea"))
    np.testing.assert_array_equal(again.distances(X.astype(dtype)), clf.distances(X.astype(dtype)))
    np.testing.assert_array_equal(again.predict(X.astype(dtype)), clf.predict(X.astype(dtype)))
    assert again.certificate_ == clf.certificate_
    assert again.get_params()["privacy"] == PRIVACY
    assert again.holds_private_rows_ is False


X = np.random.default_rng(1).random((48, 4))
IMAGES = np.random.default_rng(2).random((48, 16))
Y, FLAT = np.repeat([0, 1, 2], 16), np.where(np.arange(4) == 1, 0.5, X)
SCHEMA = Schema({name: Number(0, 1, missing=name == "a") for name in "abcd"})
FEW = np.where(np.arange(48) % 16 < 6, Y, -1)


def source():
    return SourceModel(privacy=PRIVACY, random_state=0).fit(X, Y)


def source_per_record(**options):
    return SourceModel(privacy=RECORD, classes=[0, 1, 2], random_state=0, **options).fit(X, Y)


def transfer(method, rows=X, given=None, **options):
    given = source() if given is None else given
    return TransferClassifier(given, method=method, random_state=0, **options).fit(rows, FEW)


def with_ensemble(make):
    """A transfer that uses source experts which small data do not lead to."""
    clf = transfer("consensus")
    clf.fitted_ = dataclasses.replace(clf.fitted_, ensemble=make(clf.fitted_.source))
    return clf


def densities(aligned):
    member = DensityExpert(aligned.model.mixtures_[:1], aligned)
    return SourceEnsemble((member, member), (1.0, 2.0), (0.5, 0.5))


def one_classifier(aligned):
    return SourceEnsemble((ClassifierExpert(aligned),), (1.0,), (1.0,))


def moments(features, rows=X, **options):
    return MomentClassifier(
        features=features, privacy=RECORD, classes=[0, 1, 2], random_state=0, **options
    ).fit(rows, Y)


KAHM, FIVE = KernelAffineHullMachine(n_components=3), RandomFourier(n_frequencies=5)
ZOO = {
    "kahm": lambda: KAHMClassifier(n_components=3, n_layers=2).fit(X, Y),
    "kahm, words as objects": lambda: KAHMClassifier(n_components=2, n_layers=1).fit(
        X, np.array(["a", "bb", "ccc"], object)[Y]
    ),
    "kahm, truth values": lambda: KAHMClassifier(n_components=2, n_layers=1).fit(X, Y > 0),
    "kahm, fractions": lambda: KAHMClassifier(n_components=2, n_layers=1).fit(X, Y * 1.0),
    "kahm, fabricated": lambda: KAHMClassifier(
        n_components=2, n_layers=1, privacy=COLUMNS, fabricate=True
    ).fit(X, Y),
    "kahm, constant column": lambda: KAHMClassifier(n_components=2, n_layers=2).fit(FLAT, Y),
    "kahm, constant rows": lambda: KAHMClassifier(n_components=1, n_layers=1).fit(0 * X, Y),
    "membership": lambda: MembershipClassifier(n_components=3, n_layers=2).fit(X, Y),
    "membership, gamma": lambda: MembershipClassifier(
        n_components=3, n_layers=2, disturbance="gamma"
    ).fit(X, Y),
    "fuzzy": lambda: FuzzyClassifier(n_components=3, n_layers=2).fit(FLAT, Y),
    "reconstruction": lambda: ReconstructionClassifier(KAHM, n_layers=2).fit(X, Y),
    "deep": lambda: ConditionallyDeep(MembershipAutoencoder(n_components=2), n_layers=2).fit(X),
    "wide": lambda: Wide(ConditionallyDeep(KAHM, n_layers=2), branch_size=20).fit(X),
    "wide, one layer": lambda: Wide(FuzzyAutoencoder(n_components=2), branch_size=20).fit(X),
    "mapping": lambda: MembershipMapping(bandwidth="auto", inducing="pivots").fit(X, X[:, 0]),
    "mapping, constant": lambda: MembershipMapping(standardize=False).fit(FLAT, 0 * X[:, :2]),
    "fuzzy model": lambda: FuzzyModel().fit(X, X),
    "bayes": lambda: BayesianMembershipMapping(trend="linear", noise="full").fit(X, X[:, :2]),
    "bayes, constant": lambda: BayesianMembershipMapping(noise="shared").fit(FLAT, X[:, 0] * 0),
    "moments": lambda: moments("fourier"),
    "moments, no privacy": lambda: MomentClassifier(features="identity").fit(X, Y),
    "moments, images": lambda: MomentClassifier(
        features=OrientedGradients(cells=(1, 2), orientations=4), dataset="drawings"
    ).fit(IMAGES, Y),
    "moments, nystrom": lambda: moments(PublicNystrom(X[:5] - 0.5, scale=1.0)),
    "moments, side by side": lambda: moments(SideBySide([ScaledIdentity(), FIVE], weights=[1, 2])),
    "moments, chain": lambda: moments(
        Chain([OrientedGradients(image_shape=(2, 4, 2), cells=2, exponent=0.375), FIVE]), IMAGES
    ),
    "moments, table": lambda: MomentClassifier(
        privacy=Privacy(epsilon=4, delta=1e-5, unit="person"), schema=SCHEMA, classes=[0, 1, 2]
    ).fit(X, Y, groups=np.arange(48) // 2),
    "hulls": lambda: HullClassifier(
        features="identity", privacy=RECORD, classes=[0, 1, 2], metric="likelihood"
    ).fit(X, Y),
    "kahm per record": lambda: KAHMClassifier(
        n_components=2, n_layers=1, privacy=RECORD, classes=[0, 1, 2], rows_per_class=10
    ).fit(X, Y),
    "regressor": lambda: MomentRegressor(privacy=RECORD, output_domain=(0, 1)).fit(X, X[:, 0]),
    "regressor, ridge": lambda: MomentRegressor(inference="ridge").fit(X, X[:, :2]),
    "source": source,
    "source per record": lambda: source_per_record(),
    "source per record, kahm": lambda: source_per_record(
        classifier=KAHMClassifier(n_components=2, n_layers=1, rows_per_class=10)
    ),
    "source of a table": lambda: SourceModel(
        privacy=Privacy(epsilon=4, delta=1e-5, unit="person"), schema=SCHEMA, classes=[0, 1, 2]
    ).fit(X, Y, groups=np.arange(48) // 2),
    "consensus, moments": lambda: transfer("consensus", given=source_per_record()),
    "centers, moments": lambda: transfer("centers", given=source_per_record()),
    "centers, moments, subspace": lambda: transfer("centers", IMAGES, source_per_record()),
    "source2target, moments": lambda: transfer("source2target", IMAGES, source_per_record()),
    "source, membership": lambda: SourceModel(
        classifier=MembershipClassifier(n_components=2, n_layers=1)
    ).fit(X, Y),
    "consensus": lambda: transfer("consensus"),
    "consensus, subspace": lambda: transfer("consensus", IMAGES),
    "consensus, densities": lambda: with_ensemble(densities),
    "consensus, classifier": lambda: with_ensemble(one_classifier),
    "centers": lambda: transfer("centers", dimensions=(2, 3), model=MembershipAutoencoder()),
    "centers, subspace": lambda: transfer("centers", IMAGES),
    "source2target": lambda: transfer("source2target"),
    "table": lambda: TableClassifier(
        KAHMClassifier(n_components=2, n_layers=1, privacy=unit_privacy(COLUMNS)),
        columns=list("abcd"),
        label="y",
        privacy=COLUMNS,
    ).fit(X, Y),
    "table of a source": lambda: TableClassifier(
        SourceModel(privacy=unit_privacy(COLUMNS)), columns=list("abcd"), label="y", privacy=COLUMNS
    ).fit(X, Y),
    "interpreter": lambda: Interpreter().fit(X, X[:, :2], names=("a", "b")),
    "feature map": lambda: RandomFourier(n_frequencies=5).fit(X),
}


@functools.cache
def fitted(name):
    return ZOO[name]()


QUESTIONS = ("predict", "predict_proba", "distances", "distance", "reconstruct", "transform")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ZOO)
def test_every_model_comes_back_to_the_last_bit(name, tmp_path):
    model = fitted(name)
    again = load(save(model, tmp_path / "model.permea", private_rows="include"))
    assert type(again) is type(model)
    rows = IMAGES if getattr(model, "n_features_in_", 4) == 16 else X
    for question in QUESTIONS:
        if hasattr(model, question):
            expected = getattr(model, question)(rows[:9])
            np.testing.assert_array_equal(getattr(again, question)(rows[:9]), expected)
    if "bayes" in name or name == "interpreter":
        for given, expected in zip(
            again.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize(
    "made",
    [
        lambda: release(X, PRIVACY),
        lambda: release_pair(X, X[:, :2], inputs=PRIVACY, outputs=PRIVACY),
        lambda: fabricate(X, n_components=2),
        lambda: fabricate_records(X, Y, privacy=RECORD, classes=[0, 1, 2]),
    ],
    ids=["release", "pair", "fabricated", "records"],
)
def test_released_rows_come_back(made, tmp_path):
    made = made()
    again = load(save(made, tmp_path / "rows.permea", private_rows="include"))
    for field in dataclasses.fields(made):
        given, expected = getattr(again, field.name), getattr(made, field.name)
        if dataclasses.is_dataclass(given) and hasattr(given, "data"):
            given, expected = given.data, expected.data
        np.testing.assert_array_equal(given, expected)


def test_all_listed_classes_are_tried_above():
    seen = set()

    def collect(value):
        if type(value).__name__ in STORABLE:
            seen.add(type(value).__name__)
        if hasattr(value, "_asdict"):
            value = value._asdict()
        elif hasattr(value, "__dict__") and type(value).__module__.startswith("permea"):
            value = vars(value)
        if isinstance(value, dict):
            value = value.values()
        if not isinstance(value, str | np.ndarray) and hasattr(value, "__iter__"):
            for item in value:
                collect(item)

    for name in ZOO:
        collect(fitted(name))
    others = {"Release", "PairRelease", "Fabricated", "FabricatedRecords", "Split"}
    assert set(STORABLE) - seen - others == set()


@pytest.mark.parametrize("name", sorted(STORABLE))
def test_the_list_knows_every_parameter(name):
    stored = STORABLE[name]
    kind = getattr(importlib.import_module(stored.module), name)
    assert set(ROOTS) <= set(STORABLE)
    if dataclasses.is_dataclass(kind):
        expected = {field.name for field in dataclasses.fields(kind)}
    else:
        expected = set(inspect.signature(kind).parameters)
    front = (
        {"model"}
        if name in ("KAHMClassifier", "MembershipClassifier", "FuzzyClassifier")
        else set()
    )
    assert set(stored.parameters) == (expected | front) - set(stored.optional)


def test_feature_names_survive(data, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=PRIVACY).fit(frame, y)
    again = load(save(clf, tmp_path / "model.permea"))
    assert list(again.feature_names_in_) == list("abcd")
    np.testing.assert_array_equal(again.predict(frame), clf.predict(frame))


def test_other_readers_of_safetensors_find_the_numbers(path):
    with safe_open(path, framework="numpy") as container:
        assert set(container.metadata()) == {"permea", "model", "sha256"}
        for name, array in Forge(path.read_bytes()).tensors.items():
            np.testing.assert_array_equal(container.get_tensor(name), array)


# ---- what may be in a file -----------------------------------------------------------------------


def test_raw_rows_are_refused_until_words_allow_them(data, tmp_path):
    plain = KAHMClassifier(n_components=3, n_layers=2).fit(*data)
    with pytest.raises(StorageError, match="contains its training rows"):
        save(plain, tmp_path / "model.permea")
    assert not list(tmp_path.iterdir())
    path = save(plain, tmp_path / "model.permea", private_rows="include")
    assert load(path).holds_private_rows_ is True
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match="include"):
        save(plain, tmp_path / "model.permea", private_rows="yes")


def test_a_bare_machine_counts_as_holding_rows(data, tmp_path):
    with pytest.raises(StorageError, match="contains its training rows"):
        save(KernelAffineHullMachine(n_components=2).fit(data[0]), tmp_path / "m.permea")


def test_the_documents_stopping_rule_leaves_a_mark(data, tmp_path):
    clf = KAHMClassifier(n_components=2, n_layers=1, privacy=PRIVACY, fabricate="original")
    with pytest.raises(StorageError, match="contains its training rows"):
        save(clf.fit(*data), tmp_path / "m.permea")


def test_a_fitted_model_given_as_a_parameter_leaves_its_rows_behind(data, tmp_path):
    X, y = data
    fitted = KernelAffineHullMachine(n_components=3).fit(X)
    clf = ReconstructionClassifier(fitted, n_layers=2, privacy=PRIVACY).fit(X, y)
    path = save(clf, tmp_path / "model.permea")
    content = path.read_bytes()
    assert fitted.coefficients_.tobytes() not in content
    assert not hasattr(load(path).model, "coefficients_")


def test_other_readers_find_the_certificate_without_building_the_model(path):
    file = Forge(path.read_bytes())
    (entry,) = file.manifest["certificates"]
    assert entry["certificate"]["privacy"]["epsilon"] == 4
    assert entry["signature"] is None
    assert file.manifest["permea"] == permea.__version__
    assert file.model["class"] == "KAHMClassifier"


def test_no_private_row_can_be_found_in_the_file(data, path):
    X, _ = data
    content = path.read_bytes()
    for row in X:
        assert row.tobytes() not in content
        assert row[:1].tobytes() not in content


def test_ledgers_and_generators_stay_behind(data, tmp_path):
    clf = KAHMClassifier(
        n_components=2,
        n_layers=1,
        privacy=PRIVACY,
        ledger=permea.Ledger(),
        random_state=np.random.RandomState(0),
    ).fit(*data)
    again = load(save(clf, tmp_path / "model.permea"))
    assert again.ledger is None
    assert again.random_state is None


def test_what_cannot_be_saved_is_named(data, tmp_path, model):
    from sklearn.svm import SVC

    with pytest.raises(StorageError, match=r"sklearn\.svm"):
        save(SVC(), tmp_path / "m.permea", private_rows="include")
    with pytest.raises(StorageError, match="fit it before"):
        save(KAHMClassifier(), tmp_path / "m.permea", private_rows="include")
    model.notes_ = "mine"
    with pytest.raises(StorageError, match="notes_"):
        save(model, tmp_path / "m.permea")


def test_a_class_of_the_same_name_from_elsewhere_is_not_ours(tmp_path):
    class KAHMClassifier(permea.KAHMClassifier):
        pass

    clf = KAHMClassifier(n_components=2, n_layers=1).fit(X, Y)
    with pytest.raises(StorageError, match="only models of this library"):
        save(clf, tmp_path / "m.permea", private_rows="include")


# ---- damage --------------------------------------------------------------------------------------


def test_changed_numbers_are_found(path):
    def nudge(tensors):
        name = next(name for name, array in tensors.items() if array.dtype.kind == "f")
        tensors[name] = tensors[name] + 1

    rewritten(path, change_tensors=nudge)
    with pytest.raises(StorageError, match="numbers were changed"):
        load(path)


def test_a_changed_manifest_is_found(path):
    def change(metadata):
        metadata["permea"] = metadata["permea"].replace('"epsilon":4.0', '"epsilon":0.1')

    rewritten(path, change_metadata=change)
    with pytest.raises(StorageError, match="manifest was changed"):
        load(path)


def test_a_changed_object_tree_is_found(path):
    def change(metadata):
        metadata["model"] = metadata["model"].replace('"n_layers":2', '"n_layers":1')

    rewritten(path, change_metadata=change)
    with pytest.raises(StorageError, match="model was changed"):
        load(path)


@pytest.mark.parametrize(("schema", "words"), [(99, "newer format"), (1, "older format")])
def test_another_format_is_named(path, schema, words):
    forged = Forge(path.read_bytes())
    forged.manifest["schema"] = schema
    with pytest.raises(StorageError, match=words):
        load(forged.write(path))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 100, b"\xff" * 100])
def test_other_files_are_named_as_such(tmp_path, content):
    path = tmp_path / "model.permea"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged, cut short or not a model file"):
        load(path)


def test_a_truncated_file_is_named_as_such(path):
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match="cut short"):
        load(path)


def test_a_safetensors_file_of_somebody_else_is_named_as_such(tmp_path):
    save_file({"weights": np.zeros(3)}, tmp_path / "model.permea")
    with pytest.raises(StorageError, match="did not write it"):
        load(tmp_path / "model.permea")


def test_missing_files_and_folders_are_named(model, tmp_path):
    with pytest.raises(StorageError, match="not a file"):
        load(tmp_path / "nothing.permea")
    with pytest.raises(StorageError, match="does not exist"):
        save(model, tmp_path / "no" / "model.permea")


@pytest.mark.timeout(30)
def test_folders_pipes_and_devices_are_no_models(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(StorageError, match="not a file"):
            load(path)


def test_a_link_to_a_model_can_be_read(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    assert load(tmp_path / "link").n_features_in_ == 4


# ---- writing -------------------------------------------------------------------------------------


def test_an_interrupted_write_leaves_the_old_file(model, path, tmp_path, monkeypatch):
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        save(model, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_planted_link_is_replaced_and_not_followed(model, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "model.permea").symlink_to(precious)
    path = save(model, tmp_path / "model.permea")
    assert precious.read_text() == "mine"
    assert not path.is_symlink()
    assert load(path).n_features_in_ == 4


def test_a_file_is_private_until_it_is_complete(model, tmp_path, monkeypatch):
    modes = []
    fchmod = os.fchmod

    def watched(handle, mode):
        modes.append(os.fstat(handle).st_mode & 0o777)
        fchmod(handle, mode)

    monkeypatch.setattr("os.fchmod", watched)
    before = os.umask(0o027)
    try:
        path = save(model, tmp_path / "model.permea")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert path.stat().st_mode & 0o777 == 0o640


# ---- files of strangers --------------------------------------------------------------------------


def old_format(path, tree, tensors=None):
    """A file as permea 0.1 wrote them, with right checksums."""
    tensors = tensors or {}
    manifest = {
        "schema": 1, "permea": "0.1.0", "holds_private_rows": False, "certificate": None,
        "tensors": {}, "model": tree,
    }  # fmt: skip
    text = json.dumps(manifest)
    metadata = {"permea": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    save_file(tensors, path, metadata=metadata)
    return path


@pytest.mark.timeout(30)
def test_a_file_cannot_name_what_is_called(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    calls = {
        "permea.federation.service.queue:Spool": [str(tmp_path / "spool")],
        "permea.federation.service.deploy:PartyNode": [str(tmp_path / "pipe")],
        "permea.federation.service.deploy:Process": [
            ["touch", str(tmp_path / "ran")],
            "log",
            {},
        ],
        "permea.privacy.ledger:Ledger": [str(tmp_path / "ledger")],
    }
    before = set(tmp_path.iterdir())
    for name, arguments in calls.items():
        old = {"object": name, "fields": {"tuple": arguments}}
        with pytest.raises(StorageError, match="older format"):
            load(old_format(tmp_path / "old.permea", old))
        (tmp_path / "old.permea").unlink()
        forged = Forge(path.read_bytes())
        for word in (name, name.split(":")[1]):
            forged.model = {"class": word, "folder": arguments[0]}
            with pytest.raises(StorageError, match="listed class"):
                load(forged.bind_certificates().write(tmp_path / "new.permea"))
        (tmp_path / "new.permea").unlink()
    assert set(tmp_path.iterdir()) == before


def test_a_few_bytes_cannot_ask_for_gigabytes(path, tmp_path):
    import tracemalloc

    strings = {"strings": [""], "shape": [1], "dtype": "<U300000000"}
    tracemalloc.start()
    with pytest.raises(StorageError, match="older format"):
        load(old_format(tmp_path / "old.permea", strings))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def machine(forged):
    """The first machine in a forged file that has coefficients: one of a single row has none."""
    for branches in (wide["branches_"] for wide in forged.model["class_models_"]["list"]):
        for branch in branches["list"]:
            first = branch["layers_"]["list"][0]
            if forged.tensors[next(iter(first["coefficients_"].values()))].size:
                return first
    raise AssertionError("no machine has coefficients")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_weights_that_are_no_numbers_are_refused(path, value):
    forged = Forge(path.read_bytes())
    forged.tensors[machine(forged)["coefficients_"]["array"]][0, 0] = value
    with pytest.raises(StorageError, match="coefficients_: NaN, infinity or absurdly large"):
        load(forged.bind_certificates().write(path))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_components_", 7),
        ("n_components_", True),
        ("n_features_in_", 5),
        ("regularization_", {"float": "nan"}),
        ("regularization_", -1.0),
        ("regularization_", "0.1"),
        ("codes_", {"array": "t999"}),
        ("codes_", {"list": []}),
        ("encoding_", None),
        ("encoding_", {"class": "KernelAffineHullMachine", "n_components": 1, "tol": 0.1}),
        ("fit", 1),
        ("__class__", "SVC"),
    ],
)
def test_a_field_that_is_not_as_declared_is_refused(path, field, value):
    forged = Forge(path.read_bytes())
    machine(forged)[field] = value
    with pytest.raises(StorageError, match="is not a model of this version"):
        load(forged.bind_certificates().write(path))


def test_sizes_that_do_not_fit_each_other_are_refused(path):
    forged = Forge(path.read_bytes())
    name = machine(forged)["denominators_"]["array"]
    forged.tensors[name] = forged.tensors[name][:-1].copy()
    with pytest.raises(StorageError, match="denominators_: its size N"):
        load(forged.bind_certificates().write(path))


def test_a_missing_field_is_refused(path):
    forged = Forge(path.read_bytes())
    del machine(forged)["codes_"]
    with pytest.raises(StorageError, match="lacks"):
        load(forged.bind_certificates().write(path))


def test_numbers_that_nobody_uses_are_refused(path):
    forged = Forge(path.read_bytes())
    forged.tensors["t999"] = np.zeros(3)
    with pytest.raises(StorageError, match="no part of the model uses"):
        load(forged.bind_certificates().write(path))


def test_nesting_has_an_end(path):
    forged = Forge(path.read_bytes())
    template = {"class": "KernelAffineHullMachine", "n_components": 1, "tol": 0.1}
    for _ in range(40):
        template = {"class": "ConditionallyDeep", "model": template, "n_layers": 1}
    forged.model["model"] = template
    with pytest.raises(StorageError, match="too deeply"):
        load(forged.bind_certificates().write(path))


# ---- certificates --------------------------------------------------------------------------------

KEY, STRANGER = SigningKey.generate("clinic"), SigningKey.generate("stranger")
TRUSTED = TrustedKeys([KEY.public])


@pytest.fixture
def signed(model, tmp_path):
    return save(model, tmp_path / "signed.permea", sign=KEY)


def test_a_certificate_from_a_file_is_a_claim_until_a_trusted_key_signed_it(model, path, signed):
    assert model.certificate_.status == "PRIVATE"
    assert load(path).certificate_.status == "unverified claim"
    assert load(path, trusted=TRUSTED).certificate_.signer is None
    assert load(signed).certificate_.status == "unverified claim"
    again = load(signed, trusted=TRUSTED).certificate_
    assert (again.status, again.signer) == ("PRIVATE", "clinic")


def test_an_edited_certificate_on_a_model_that_is_not_private_is_no_promise(path, data, tmp_path):
    plain = KAHMClassifier(n_components=3, n_layers=2).fit(*data)
    target = save(plain, tmp_path / "plain.permea", private_rows="include")
    forged = Forge(target.read_bytes())
    forged.manifest["certificates"] = Forge(path.read_bytes()).manifest["certificates"]
    forged.manifest["certificates"][0]["certificate"]["privacy"]["epsilon"] = 0.01
    forged.model["certificate_"] = {"certificate": 0}
    forged.model["holds_private_rows_"] = False
    with pytest.raises(StorageError, match="does not belong to these weights"):
        load(forged.fix_checksums().write(target))
    for key in (None, STRANGER):
        again = load(forged.bind_certificates(key).write(target), trusted=TRUSTED)
        assert again.certificate_.privacy.epsilon == 0.01
        assert again.certificate_.status == "unverified claim"
        assert "PRIVATE" not in str(again.certificate_)


def test_a_signed_certificate_does_not_move_to_other_weights(signed, data, tmp_path):
    other = KAHMClassifier(n_components=3, n_layers=2, privacy=PRIVACY).fit(*data)
    target = Forge(save(other, tmp_path / "other.permea").read_bytes())
    target.manifest["certificates"] = Forge(signed.read_bytes()).manifest["certificates"]
    with pytest.raises(StorageError, match="does not belong to these weights"):
        load(target.fix_checksums().write(tmp_path / "other.permea"), trusted=TRUSTED)


def test_signed_weights_cannot_change(signed):
    forged = Forge(signed.read_bytes())
    forged.tensors[machine(forged)["coefficients_"]["array"]][0, 0] += 1
    with pytest.raises(StorageError, match="does not belong to these weights"):
        load(forged.fix_checksums().write(signed), trusted=TRUSTED)
    entry = forged.manifest["certificates"][0]
    signature = entry["signature"]
    forged.bind_certificates()
    entry["signature"] = signature
    with pytest.raises(StorageError, match="altered after signing"):
        load(forged.write(signed), trusted=TRUSTED)
    entry["signature"] = None
    assert load(forged.write(signed), trusted=TRUSTED).certificate_.status == "unverified claim"


def test_signed_parameters_cannot_change(signed):
    forged = Forge(signed.read_bytes())
    forged.model["holds_private_rows_"] = True
    with pytest.raises(StorageError, match="does not belong to these weights"):
        load(forged.fix_checksums().write(signed), trusted=TRUSTED)


def test_a_signature_of_an_untrusted_key_verifies_nothing(signed):
    forged = Forge(signed.read_bytes())
    forged.manifest["certificates"][0]["certificate"]["privacy"]["epsilon"] = 0.01
    forged.bind_certificates(STRANGER)
    assert load(forged.write(signed), trusted=TRUSTED).certificate_.signer is None
    entry = forged.manifest["certificates"][0]
    entry["signature"]["key"] = KEY.sign(b"anything").to_dict()["key"]
    with pytest.raises(StorageError, match="altered after signing"):
        load(forged.write(signed), trusted=TRUSTED)


def test_certificates_of_one_model_do_not_change_places(tmp_path):
    table = fitted("table")
    path = save(table, tmp_path / "table.permea", sign=KEY)
    again = load(path, trusted=TRUSTED)
    assert again.certificate_.signer == again.classifier_.certificate_.signer == "clinic"
    assert again.certificate_.privacy.domain != again.classifier_.certificate_.privacy.domain
    forged = Forge(path.read_bytes())
    forged.manifest["certificates"].reverse()
    with pytest.raises(StorageError, match="does not belong to these weights"):
        load(forged.fix_checksums().write(path), trusted=TRUSTED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("record_epsilon", -1.0), ("record_epsilon", "small"), ("record_epsilon", True),
        ("n_rows", 1.5), ("n_rows", -1), ("noise", 7), ("seeded", 0), ("seeded", "no"),
        ("steps", "none"), ("steps", [1]), ("privacy", None), ("privacy", {"epsilon": 1}),
        ("classes", "guessed"), ("is_private", False), ("signer", "clinic"), ("schema", 99),
        ("noise", "x" * 50_000),
    ],
)  # fmt: skip
def test_certificates_have_the_entries_they_should(path, name, value):
    forged = Forge(path.read_bytes())
    forged.manifest["certificates"][0]["certificate"][name] = value
    with pytest.raises(StorageError, match="certificate cannot be read"):
        load(forged.bind_certificates().write(path))


def test_a_model_that_says_it_holds_no_rows_must_promise_something(path):
    forged = Forge(path.read_bytes())
    forged.manifest["certificates"] = []
    forged.model["certificate_"] = None
    with pytest.raises(StorageError, match="no certificate"):
        load(forged.bind_certificates().write(path))


def test_nothing_to_sign_is_an_error(data, tmp_path):
    plain = KAHMClassifier(n_components=3, n_layers=2).fit(*data)
    with pytest.raises(StorageError, match="no certificate to sign"):
        save(plain, tmp_path / "m.permea", private_rows="include", sign=KEY)
