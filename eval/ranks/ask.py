"""`gpucast time` of a job's captures, for the commands of this folder."""

import json
import subprocess

from eval import jobs


def add_options(parser):
    parser.add_argument("--machine", help="as `gpucast machines` names it")
    parser.add_argument("--cpu-speed", type=float, help="of the measured machine's host, relative to this one")
    jobs.add_gpucast_option(parser)


def options_of(args):
    named = {"--machine": args.machine, "--cpu-speed": args.cpu_speed}
    return [word for name, value in named.items() if value for word in (name, str(value))]


def ask(gpucast, files, card, options):
    command = [gpucast, "time", *map(str, files), "--gpu", card, *options, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    return json.loads(done.stdout)


def server_speed(gpucast, file, card):
    """The host of an A100's server, relative to this machine as it was during the capture: --cpu-speed."""
    return ask(gpucast, [file], card, [])["server_speed"]


def step_s(answer):
    """Of the job; of the captured rank alone where gpucast says nothing of the job."""
    return (answer.get("job") or answer)["step"]["expected_ns"] / 1e9
