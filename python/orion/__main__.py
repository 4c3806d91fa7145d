"""The predictions of ORION, PreNeT, a roofline and gpucast for one captured step.

    gpucast run -o train.gpucast -- python train.py
    PYTHONPATH=python python -m orion train.gpucast --gpu a100-80,rtx4090 --method orion,prenet,roofline,gpucast --trees trees.json

Trees come from `python -m eval.orion.evaluate --trees FILE`. With --one-worker-ms the step is the slower of GPU and data pipeline.
"""

import argparse
import json
import os
import sys

from . import features, flops, pipeline, steps, trees

METHODS = ("orion", "prenet", "roofline", "gpucast")


def parse_args(words):
    parser = argparse.ArgumentParser(prog="orion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", help="of `gpucast run -o FILE`")
    parser.add_argument("--gpu", required=True, help="cards of `gpucast gpus`, separated by commas")
    parser.add_argument("--method", default="orion", help=f"separated by commas: {', '.join(METHODS)} (default %(default)s)")
    parser.add_argument("--trees", help="a file of trained trees, for orion and prenet")
    parser.add_argument(
        "--kappa", type=float, default=flops.KAPPA, help="FLOPs of an iteration over its forward pass (default %(default)s)"
    )
    parser.add_argument("--gpucast", default=os.environ.get("GPUCAST_BIN", "gpucast"), help="default: $GPUCAST_BIN, or on PATH")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    feeding = parser.add_argument_group("data pipeline")
    feeding.add_argument("--one-worker-ms", type=float, help="preprocessing of a batch by a single worker")
    feeding.add_argument("--decode-ms", type=float, default=0.0, help="of a sample")
    feeding.add_argument("--batch-bytes", type=float, default=0.0, help="size of a batch on the disk")
    feeding.add_argument("--workers", type=int, default=1)
    feeding.add_argument("--storage", default="nvme", help="ssd, nvme or bytes per second (default %(default)s)")
    feeding.add_argument("--alpha", type=float, default=0.0, help="contention of the universal scalability law")
    feeding.add_argument("--beta", type=float, default=0.0, help="its coherency")
    return parser.parse_args(words)


def gpu_ms(method, step, card, times, models, kappa):
    if method == "roofline":
        return steps.roofline_ms(times)
    if method == "gpucast":
        return times["step"]["expected_ns"] / 1e6
    if method not in models:
        raise ValueError(f"{method} needs trees: --trees FILE, of eval/orion/evaluate.py --trees FILE")
    names, make = features.METHODS[method]
    if models[method]["features"] != list(names):
        raise ValueError(f"the trees of {method} use other features; train them again")
    return trees.predict(models[method], make(step, card, kappa) if method == "orion" else make(step, card))


def answer(args):
    methods = args.method.split(",")
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise ValueError(f"no method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    models = trees.read(args.trees) if args.trees else {}
    known = steps.cards(steps.ask(args.gpucast, "gpus")["gpus"])
    step, by_card = steps.read(args.gpucast, args.capture, args.gpu.split(","))
    feeding = None
    if args.one_worker_ms is not None:
        loader = pipeline.Pipeline(args.batch_bytes, args.decode_ms, args.one_worker_ms, args.alpha, args.beta)
        feeding = pipeline.pipeline_ms(loader, step.samples, args.workers, args.storage)
    lines = []
    for card, times in by_card.items():
        for method in methods:
            computing = gpu_ms(method, step, known[card], times, models, args.kappa)
            total, bound = pipeline.step_ms(computing, feeding or 0.0)
            lines.append({"gpu": card, "method": method, "step_ms": total, "gpu_ms": computing, "pipeline_ms": feeding, "bound": bound})
    return lines


def text(lines):
    out = []
    for line in lines:
        paths = (
            "" if line["pipeline_ms"] is None else f"  GPU {line['gpu_ms']:.2f}, pipeline {line['pipeline_ms']:.2f}: {line['bound']}-bound"
        )
        out.append(f"{line['gpu']:<14} {line['method']:<9} {line['step_ms']:10.2f} ms{paths}")
    return "\n".join(out)


def main(words=None):
    args = parse_args(words)
    try:
        lines = answer(args)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"orion: {error}", file=sys.stderr)
        return 2
    print(json.dumps(lines) if args.format == "json" else text(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
