"""docs/workloads.md agrees with the code: the data sets, and the example of a user's own workload."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import pytest

from paceline.scenarios import load
from paceline.scenarios.sections.workload import Workload
from paceline.workloads import find_model
from paceline.workloads.datasets import DATA
from paceline.workloads.datasets.catalogue import HOME
from paceline.workloads.learners.module_trial import TRIED
from paceline.workloads.models.transformer_config import MEANINGS
from tests.unit.test_docs import ROOT, blocks, table

PAGE = (ROOT / "docs/workloads.md").read_text(encoding="utf-8")


def test_the_data_sets_are_those_known() -> None:
    rows = {row[0]: row[1:] for row in table(PAGE, "name | sample")}
    assert list(rows) == list(DATA)
    for name, (sample, classes, counts, holds) in rows.items():
        known = DATA[name]
        if known.shape:
            assert sample.removesuffix(" tokens") == " × ".join(map(str, known.shape))
            assert classes == str(known.classes)
            assert counts == f"{known.train} + {known.test}"
        assert ("nothing" in holds) is (known.read is None)
    for name in (
        "train-images-idx3-ubyte",
        "cifar-10-python.tar.gz",
        "cifar-100-python.tar.gz",
        f"${HOME}",
        f"first {TRIED}",
    ):
        assert name in PAGE


def test_the_keys_are_the_sections() -> None:
    keys = [row[0] for row in table(PAGE, "key | means")]
    assert set(keys) == set(Workload.model_fields) - {"options", "vmap"}


def test_the_size_of_the_example_is_read(tmp_path: Path) -> None:
    (config,) = blocks(PAGE, "json")
    (source,) = (block for block in blocks(PAGE, "yaml") if block.startswith("# tinyllama.yaml\n"))
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    (tmp_path / "tinyllama.yaml").write_text(source, encoding="utf-8")
    model = find_model(load(tmp_path / "tinyllama.yaml").workload.model)
    assert f"TinyLlama {model.parameters:,}".replace(",", " ") in PAGE
    keys = {key.strip("`") for row in table(PAGE, "size | means") for key in row[0].split(", ")}
    assert keys | {"_attn_implementation", "embedding_dropout", "sequence_length"} == {*MEANINGS, "model_type"}


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for language, file in (("python", "spirals.py"), ("yaml", "spirals.yaml")):
        (source,) = (block for block in blocks(PAGE, language) if block.startswith(f"# {file}\n"))
        (tmp_path / file).write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "spirals", raising=False)
    (text,) = blocks(PAGE, "pycon")
    session = doctest.DocTestParser().get_doctest(text, {}, "workloads", "docs/workloads.md", 0)
    result = doctest.DocTestRunner().run(session)
    assert result.attempted > 5
    assert result.failed == 0
