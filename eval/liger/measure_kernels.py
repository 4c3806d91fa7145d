"""Runs measurements of one of Liger-Kernel's benchmark scripts within one step. Runs under `gpucast run`, the script's folder on PYTHONPATH.

python measure_kernels.py SCRIPT REQUESTS REPORT: REQUESTS is a list of JSON with kernel, provider, mode, x and config of each measurement. The script
is not changed: its own functions make the tensors and the function that `triton.testing.do_bench` is given. That function is called twice,
and the second call is the measurement. A kernel of MARKER stands before and after it. REPORT gets the numbers of the requests that were
measured, in order, and why others failed.
"""

import json
import pathlib
import runpy
import sys

MARKER = "aten::erfinv_"


def with_types(config, torch):
    """A row's configuration has the names of types: "torch.bfloat16"."""
    return {
        key: getattr(torch, value.removeprefix("torch.")) if isinstance(value, str) and value.startswith("torch.") else value
        for key, value in config.items()
    }


def functions_of(script):
    """The module `utils` beside the script, and the script's functions that measure time, by the kernel's name."""
    import utils  # the script's neighbour: its folder is on PYTHONPATH

    found = {}

    def keep(bench_test_fn, kernel_name, metric_name, **_):
        if metric_name == "speed":
            found[kernel_name] = bench_test_fn

    utils.run_benchmarks = keep
    sys.argv = [str(script)]
    runpy.run_path(str(script), run_name="__main__")
    return utils, found


def main():
    import torch
    import triton

    script, asked, report = map(pathlib.Path, sys.argv[1:])
    rows = json.loads(asked.read_text())
    utils, functions = functions_of(script)
    measured, failed = [], {}
    mark = torch.zeros(1, device="cuda")
    parameter = torch.nn.Parameter(torch.zeros(1, device="cuda"))
    parameter.grad = torch.zeros(1, device="cuda")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.step()  # the step between the two is observed
    running = []
    for number, row in enumerate(rows):

        def bench(function, *_, grad_to_none=None, number=number, **__):
            if running:  # a compiler chooses among kernels
                function()
                return 1.0
            running.append(number)
            try:
                measure(function, grad_to_none, number)
            finally:
                running.clear()
            return 1.0, 1.0, 1.0

        def measure(function, grad_to_none, number):
            def clear():
                for tensor in grad_to_none or ():
                    tensor.grad = None

            clear()
            function()
            clear()
            measured.append(number)
            mark.erfinv_()
            try:
                function()
            finally:
                mark.erfinv_()

        triton.testing.do_bench = bench
        request = utils.SingleBenchmarkRunInput(
            x=row["x"],
            kernel_provider=row["provider"],
            kernel_operation_mode=row["mode"],
            extra_benchmark_config=with_types(row["config"], torch),
        )
        try:
            functions[row["kernel"]](request)
        except Exception as error:
            failed[number] = f"{type(error).__name__}: {error}"[:300]
    report.write_text(json.dumps({"measured": measured, "failed": failed}))
    optimizer.step()  # gpucast ends the process here


if __name__ == "__main__":
    main()
