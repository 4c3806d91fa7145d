"""Fits the constants of collectives within a node (data/network.json) on measured machines.

    python -m eval.ranks.fit_collectives --data DIR --on a100_sxm,h200_sxm,b200_sxm,gb300 --out FILE

Several nodes: --on p4de,a3-mega,nd-h100-v5,dgx-h100 --groups network.
Cards in slots: --on l40s --ranks 2 --groups path_pcie; --on l40s --ranks 4 --groups path_host.

The formulas are gpucast's: each step of the fit runs the command with other constants. A generation without a machine in --on gets the
geometric means of the fitted generations; --scale path_hopper=0.67 multiplies its times, to meet a measurement of such a card. FILE is a
constants file for --constants; --write puts the numbers into data/network.json. Needs scipy.
"""

import argparse
import collections
import json
import pathlib
import statistics

import numpy

from eval import ROOT, jobs
from eval import tables as t
from eval.ranks import rows as measured

NETWORK = ROOT / "data/network.json"
PATHS = {"a100_sxm": "path_ampere", "h200_sxm": "path_hopper", "h100_sxm": "path_hopper", "b200_sxm": "path_blackwell",
         "b300_sxm": "path_blackwell", "gb200": "path_blackwell", "gb300": "path_blackwell"}  # fmt: skip
GENERATIONS = ("path_ampere", "path_hopper", "path_blackwell")
# NCCL's own, or chosen.
NOT_FITTED = ("source", "bus_fraction", "channels", "nvls_channels", "own_work", "reads", "peer_overlap", "hop_ns")
NOT_FITTED += ("ordered_most_hop_ns", "unknown_bytes_per_s")
STEEPNESS = 8  # an error of 1 / 8 and more counts less than its square


def typical_rows(data, machines, ranks):
    """One row for each operation of each machine: the median of its measurements."""
    rows, _ = measured.one_node(data / "multi_gpu/collectives_one_node.csv.gz")
    rows += measured.several_nodes(data / "multi_gpu/collectives_nodes.csv.gz")[0]
    times = collections.defaultdict(list)
    for row in rows:
        if row.machine in machines and (row.nodes > 1 or row.ranks in ranks):
            times[row.machine, row.kind, row.dtype, row.ranks, row.nodes, row.bytes].append(row)
    return [(same[0], statistics.median(row.measured_us for row in same)) for same in times.values()]


class Fit:
    def __init__(self, gpucast, data, machines, ranks, groups):
        self.gpucast = gpucast
        pairs = typical_rows(data, machines, ranks)
        self.rows = [row for row, _ in pairs]
        self.measured = numpy.log([us for _, us in pairs])
        size = collections.Counter((row.machine, row.kind) for row in self.rows)
        self.weights = numpy.array([1 / size[row.machine, row.kind] ** 0.5 for row in self.rows])
        self.network = json.loads(NETWORK.read_text())["network"]
        groups = groups or [*sorted({PATHS[machine] for machine in machines}), "kernel"]
        self.names = [(group, name) for group in groups for name in self.network[group] if name not in NOT_FITTED]

    def constants(self, logs):
        network = collections.defaultdict(lambda: {"source": "eval.ranks.fit_collectives"})
        for (group, name), log in zip(self.names, logs, strict=True):
            network[group][name] = float(numpy.exp(log))
        return {"schema_version": 1, "network": dict(network)}

    def errors(self, logs):
        return numpy.log(measured.predict_us(self.gpucast, self.rows, self.constants(logs))) - self.measured

    def residuals(self, logs):
        return self.weights * numpy.arctan(STEEPNESS * self.errors(logs)) / STEEPNESS

    def slopes(self, logs):
        """By differences: a number of one generation moves the rows of its machines alone, but all are timed."""
        here, step = self.residuals(logs), 1e-3
        return numpy.array([(self.residuals(logs + step * unit) - here) / step for unit in numpy.eye(len(logs))]).T

    def run(self, rounds):
        """(constants, the rows' errors). A number that no row moves is left out."""
        from scipy.optimize import least_squares  # the environments of the tests do not have it

        begin = numpy.log([self.network[group][name] for group, name in self.names])
        found = least_squares(self.residuals, begin, jac=self.slopes, max_nfev=rounds, x_scale=0.3, bounds=(begin - 4, begin + 4))
        constants = self.constants(found.x)
        for (group, name), slope in zip(self.names, numpy.abs(found.jac).max(axis=0), strict=True):
            if slope == 0:
                del constants["network"][group][name]
        return constants, self.errors(found.x)


def with_other_generations(constants):
    """A number of a generation that no machine decides: the mean of the other generations."""
    network = json.loads(NETWORK.read_text())["network"]
    fitted = {group: dict(constants["network"].get(group, {})) for group in GENERATIONS}
    for group in GENERATIONS:
        out = constants["network"].setdefault(group, {"source": "geometric mean of the fitted generations"})
        for name in network[group]:
            known = [numbers[name] for numbers in fitted.values() if name in numbers]
            if name not in NOT_FITTED and name not in out and known:
                out[name] = statistics.geometric_mean(known)
    return constants


def rounded(value):
    return float(f"{value:.3g}") if value < 10 else round(float(f"{value:.4g}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--on", default="a100_sxm,h200_sxm,b200_sxm,gb300", help="machines to fit on")
    parser.add_argument("--ranks", default="2,4,8", help="rows of these numbers of ranks")
    parser.add_argument(
        "--groups", default="", help="groups of data/network.json to fit; default: the generations of --on, and what they share"
    )
    parser.add_argument("--scale", default="", help="a group without a machine in --on, and a factor of its times")
    parser.add_argument("--out", type=pathlib.Path, help="where the constants go")
    parser.add_argument("--write", action="store_true", help="also into data/network.json")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    machines = options.on.split(",")
    unknown = [name for name in machines if name not in PATHS]
    groups = [name for name in options.groups.split(",") if name]
    if unknown and not groups:
        raise SystemExit(f"--on: {', '.join(unknown)} is none of {', '.join(PATHS)}")
    ranks = [int(number) for number in options.ranks.split(",")]
    fit = Fit(jobs.find(options.gpucast), options.data, machines, ranks, groups)
    constants, errors = fit.run(options.rounds)
    print(f"{len(fit.rows)} operations, {len(fit.names)} numbers; median {100 * numpy.median(abs(errors)):.1f} %, "
          f"90th {100 * t.quantile(abs(errors), 0.9):.1f} %")  # fmt: skip
    if not groups:
        constants = with_other_generations(constants)
    if options.scale:
        scaled, factor = options.scale.split("=")
        for name in constants["network"][scaled]:
            if name.endswith("_ns"):
                constants["network"][scaled][name] *= float(factor)
    for group in constants["network"].values():
        group.update({name: rounded(value) for name, value in group.items() if name != "source"})
    if options.out:
        options.out.write_text(json.dumps(constants, indent=1) + "\n")
    if options.write:
        file = json.loads(NETWORK.read_text())
        for name, group in constants["network"].items():
            file["network"][name].update({key: value for key, value in group.items() if key != "source"})
        NETWORK.write_text(json.dumps(file, indent=1) + "\n")


if __name__ == "__main__":
    main()
