"""The JSON files that are built into the command."""

import json

import pytest
from conftest import ROOT


@pytest.mark.once
@pytest.mark.parametrize("path", sorted((ROOT / "data").rglob("*.json")), ids=lambda path: path.stem)
def test_no_key_stands_twice(path):
    def once(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), keys
        return dict(pairs)

    json.loads(path.read_text(), object_pairs_hook=once)
