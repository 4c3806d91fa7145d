"""One training step that runs many cases. Used by the programs of this folder, under `gpucast run --steps 2`."""

import json
import pathlib
import sys


def run(cases):
    """The programs' command line: REPORT [PART/PARTS | CASE ...]. REPORT gets the names that ran, and why others failed."""
    import torch

    report, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(cases)
    if "/" in names[0]:
        part, parts = map(int, names[0].split("/"))
        names = list(cases)[part - 1 :: parts]
    done, failed = [], {}
    parameter = torch.nn.Parameter(torch.zeros(1, device="cuda"))
    parameter.grad = torch.zeros(1, device="cuda")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.step()  # the step between the two is observed
    for name in names:
        try:
            cases[name]()
            torch.cuda.synchronize()
            done.append(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:500]
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
        report.write_text(json.dumps({"done": done, "failed": failed}, indent=1))
    optimizer.step()  # gpucast ends the process here
