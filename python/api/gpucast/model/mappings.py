"""Which architectures this Python's transformers knows, read from its sources: importing it takes seconds, and needs CUDA's libraries."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from ..command import Error


def config_types() -> set[str]:
    """Values of "model_type"."""
    known: set[str] = set()
    for name in ("auto_mappings.py", "configuration_auto.py"):
        known |= _types(name, "CONFIG_MAPPING_NAMES")
    return known


def types_of(auto_class: str) -> set[str]:
    """The model types of a class like AutoModelForCausalLM."""
    return _types("modeling_auto.py", _MAPPINGS[auto_class])


_MAPPINGS = {
    "AutoModelForSpeechSeq2Seq": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "AutoModelForCTC": "MODEL_FOR_CTC_MAPPING_NAMES",
}


def _types(file_name: str, variable: str) -> set[str]:
    """The first strings of the pairs in `variable = OrderedDict([(type, class), ...])`."""
    found: set[str] = set()
    for node in _tree(file_name).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        called = isinstance(node, ast.Expr) and ast.unparse(node.value).startswith(f"{variable}.")
        if called or any(isinstance(target, ast.Name) and target.id == variable for target in targets):
            pairs = (one for one in ast.walk(node) if isinstance(one, ast.Tuple) and len(one.elts) == 2)
            keys = [pair.elts[0] for pair in pairs] + [key for one in ast.walk(node) if isinstance(one, ast.Dict) for key in one.keys]
            found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


@functools.cache
def _tree(file_name: str) -> ast.Module:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise Error("this Python has no transformers", "", "pip install transformers; or name another Python: --python ENV/bin/python")
    path = Path(spec.origin).parent / "models" / "auto" / file_name
    return ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
