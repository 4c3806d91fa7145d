"""Known causes of differences between a step and its prediction. In order: the table of misses names the first that applies."""

import re

# PyTorch 1.12's cuDNN (8.3) has no fast kernels for groups of several channels in channels-last: the same steps with channels first took
# between a third and three quarters of the time.
GROUPED = re.compile(r"regnet|resnest|nfnet|resnext|repvgg_b\dg\d|_cc_|_g\d+_|botnext")
# Their queries have five dimensions, or a mask: no fused kernel.
UNFUSED = re.compile(r"^(nest|hiera|sam2_hiera|samvit|mobilenetv4_hybrid)")


def slower(row, p):
    return row.measured_ms > 1.25 * p.expected_ms


CAUSES = [
    (lambda row, p: p.unknown_share > 0.1, "operations of unknown kind take more than a tenth"),
    (lambda row, p: p.coverage < 0.9, "library calls without an operator's shapes"),
    (lambda row, p: "cc_b" in row.model, "weights mixed for each sample: one convolution with a group for each sample"),
    (
        lambda row, p: row.table == "timm-train" and row.group == "NHWC" and GROUPED.search(row.model),
        "grouped convolutions, channels last, in cuDNN 8.3",
    ),
    (
        lambda row, p: "bert_pretraining" in row.job["name"] and "s512" in row.job["name"] and not slower(row, p),
        "the label: in fp32 it would be more arithmetic than the card's peak",
    ),
    (
        lambda row, p: row.table == "torchvision" and row.card == "gtx1080ti" and row.group == "fp16",
        "half precision without tensor cores: 1x1 convolutions slower than in fp32, which no measured operation shows",
    ),
    (
        lambda row, p: row.table == "torchvision" and slower(row, p),
        "12 images a step: probably the measured machine's host, which differs from this one",
    ),
    (
        lambda row, p: row.table == "timm-infer"
        and row.card != "rtx5090"
        and "-torch" not in row.job["name"]
        and UNFUSED.search(row.model)
        and not slower(row, p),
        "captured with another release (--release): attention that is not fused computes in fp32 and guards its softmax since PyTorch 2.5",
    ),
    (
        lambda row, p: row.table == "timm-infer"
        and p.kinds_ms.get("normalization", 0) > 0.15 * sum(p.kinds_ms.values())
        and not slower(row, p),
        "layer norm of rows below 200 elements: no measured row is that narrow",
    ),
    (lambda row, p: row.group == "TF32", "TF32: there was no measured step or operation to fit"),
    (lambda row, p: p.bound == "host", "the host's time is this machine's"),
]
