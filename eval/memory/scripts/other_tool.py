"""What another tool says of one of eval/truth's trainings, as one line of JSON: {"bytes": ..., "release": ...}; null where it cannot say.

    python other_tool.py TOOL JOB

Nothing is computed: models are on the meta device, or tensors are fake. MemTracker's step runs on fake CPU tensors, because the backward pass
of fake CUDA tensors needs a card.
"""

import argparse
import importlib.metadata
import inspect
import json
import types
from pathlib import Path

TRAINING = Path(__file__).resolve().parents[2] / "truth" / "training_job.py"


def training_on(device):
    """The module training_job, with this device in the place of the card."""
    text = TRAINING.read_text().replace('"cuda"', f'"{device}"')
    module = types.ModuleType("training_job")
    exec(compile(text, str(TRAINING), "exec"), module.__dict__)  # our own file
    return module


def empty_model(job):
    import torch
    import transformers

    model_class, config_class, values = training_on("cpu").TRANSFORMERS[job["model"].partition(":")[2]]
    with torch.device("meta"):
        return getattr(transformers, model_class)(getattr(transformers, config_class)(**values))


def accelerate(job):
    """`accelerate estimate-memory`, column "Training using Adam (Peak)", of weights in float32."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(empty_model(job))
    return max(estimate_training_usage(total, "float32").values())


def deepspeed(job):
    """Model states of one card under ZeRO, as DeepSpeed's documentation asks for them."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    parameters = sum(parameter.numel() for parameter in empty_model(job).parameters())
    _, on_card = estimate_zero2_model_states_mem_needs(parameters, 1, 1, False, 1.5)
    return on_card


def torchinfo(job):
    """ "Estimated Total Size" of torchinfo's summary."""
    import torch
    import torchinfo

    ids = torch.zeros(job["batch"], job["length"], dtype=torch.long, device="meta")
    found = torchinfo.summary(empty_model(job), input_data={"input_ids": ids, "labels": ids}, device="meta", mode="train", verbose=0)
    return found.total_param_bytes + found.total_output_bytes + found.total_input


def mem_tracker(job):
    """The peak of torch.distributed._tools.mem_tracker over two steps."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    torch.nn.Module.to = lambda model, *args, **kwargs: model  # it is there, and fake parameters cannot be exchanged
    with FakeTensorMode():
        step = training_on("cpu").make_step(job)
        inside = inspect.getclosurevars(step).nonlocals
        model = inspect.getclosurevars(inside["loss_of"]).nonlocals["model"]
        tracker = MemTracker()
        tracker.track_external(model, inside["optimizer"])
        with tracker:
            step()
            tracker.reset_mod_stats()
            step()
    return next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]


TOOLS = {"accelerate": accelerate, "deepspeed": deepspeed, "torchinfo": torchinfo, "torch": mem_tracker}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("job", type=json.loads)
    args = parser.parse_args()
    try:
        found = int(TOOLS[args.tool](args.job))
    except NotImplementedError:  # MemTracker: a module that is called twice in one step
        found = None
    print(json.dumps({"bytes": found, "release": importlib.metadata.version(args.tool)}))


if __name__ == "__main__":
    main()
