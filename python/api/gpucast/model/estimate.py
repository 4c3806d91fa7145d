"""What `accelerate estimate-memory` says, by accelerate's own functions, for comparison."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from .configs import Model, along
from .kinds import Kind
from .script import config_lines

DTYPES = ("float32", "float16")


def estimate(model: Model, kind: Kind) -> dict[str, Any]:
    """{"parameters", "release", DTYPE: {"weights_bytes", "training_bytes"}}; {"parameters", "problem"} where accelerate says nothing."""
    parameters = along().get(model.name, {}).get("parameters")
    try:
        import torch
        import transformers
        from accelerate.commands.estimate import estimate_training_usage
        from accelerate.utils import calculate_maximum_sizes

        names: dict[str, Any] = {"AutoConfig": transformers.AutoConfig}
        exec(config_lines(model), names)
        more = {"trust_remote_code": True} if model.own_code else {}
        with torch.device("meta"):
            whole = getattr(transformers, kind.auto_class).from_config(names["config"], torch_dtype=torch.float32, **more)
            parameters = sum(one.numel() for one in whole.parameters())
            bare = transformers.AutoModel.from_config(names["config"], torch_dtype=torch.float32, **more)  # as accelerate builds it
        size = calculate_maximum_sizes(bare)[0]
        training = {dtype: max(estimate_training_usage(size, dtype).values()) for dtype in DTYPES}
    except Exception as error:  # accelerate's, or the model's code
        return {"parameters": parameters, "problem": f"{type(error).__name__}: {error}".splitlines()[0][:100]}
    weights = {"float32": size, "float16": size // 2}
    rows = {dtype: {"weights_bytes": weights[dtype], "training_bytes": training[dtype]} for dtype in DTYPES}
    return {"parameters": parameters, "release": importlib.metadata.version("accelerate"), **rows}


def estimate_text(accelerate: dict[str, Any]) -> str:
    if "problem" in accelerate:
        return f"accelerate estimate-memory says nothing: {accelerate['problem']}"
    lines = [f"{'accelerate estimate-memory ' + accelerate['release'] + ' says':40} {'weights':>15} {'Adam, all weights':>20}"]
    for dtype in DTYPES:
        weights, training = (accelerate[dtype][name] / 2**20 for name in ("weights_bytes", "training_bytes"))
        lines.append(f"  {dtype:38} {weights:11.2f} MiB {training:16.2f} MiB")
    return "\n".join([*lines, "  of one card, without activations, adapters and CUDA's own memory"])
