"""Several ranks in one session: their messages, and the effects of an early end of one."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import LAUNCH_RANKS

BEGIN = """
import os, signal, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(0)
rank, world = dist.get_rank(), dist.get_world_size()

def say(name, value):
    os.write(2, f"@{rank} {name}={value}\\n".encode())

def on_card(*values):
    return torch.tensor(values).cuda()
"""


class Ranks:
    def __init__(self, code, err, folder):
        self.code, self.err, self.folder = code, err, folder
        found = re.findall(r"^(?:\[[^\]]*\]:)?@(\d+) (\w+)=(.*)$", err, re.MULTILINE)
        self.said = {(int(rank), name): value for rank, name, value in found}

    def everywhere(self, name, ranks=2):
        return [self.said.get((rank, name)) for rank in range(ranks)]


@pytest.fixture
def ranks(gpucast_bin, tmp_path):
    def start(script, *imports, count=2, wait=True):
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        path = tmp_path / "script.py"
        path.write_text(BEGIN + textwrap.dedent(script))
        launcher = tmp_path / "launch.py"
        launcher.write_text(LAUNCH_RANKS)
        command = [gpucast_bin, "run", "--format", "json", "-o", str(tmp_path / "out.gpucast"), "--"]
        command += [sys.executable, str(launcher), str(count), ",".join(imports), str(path)]
        environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        if not wait:
            return run, temporary
        out, err = run.communicate(timeout=120)
        done = Ranks(run.returncode, err, temporary)
        done.out = out
        return done

    return start


@pytest.mark.once
def test_ranks_that_no_launcher_numbered(ranks):
    """As mp.spawn starts them: only torch.distributed knew, and at the end it does not any more."""
    done = ranks(
        """
        del os.environ["RANK"]
        model = torch.nn.Linear(8, 8 + rank).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.randn(4, 8, device="cuda")).sum().backward()
        optimizer.step()
        dist.destroy_process_group()
        """,
        "torch._dynamo",
    )
    assert [one["rank"] for one in json.loads(done.out)["ranks"]] == [0, 1], done.err[-2000:]


def lives(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def left_behind(temporary):
    """The session's folder, with the ranks' messages for each other."""
    return [path for path in temporary.iterdir() if "gpucast" in path.name]


@pytest.mark.once
def test_objects_travel(ranks):
    done = ranks(
        """
        out = [None] * world
        dist.all_gather_object(out, {"rank": rank, "text": "x" * (10 + 50 * rank)})
        say("all", [(o["rank"], len(o["text"])) for o in out])
        objects = [("a" * 33, 1), {"b": 2}, 7] if rank == 0 else [None] * 3
        dist.broadcast_object_list(objects, src=0)
        say("broadcast", objects)
        mine = [None]
        dist.scatter_object_list(mine, [f"for {i} " * (i + 1) for i in range(world)] if rank == 0 else None, src=0)
        say("scattered", mine[0])
        gathered = [None] * world if rank == 1 else None
        dist.gather_object(("from", rank), gathered, dst=1)
        say("gathered", gathered)
        if rank == 0:
            dist.send(on_card(5, 6), 1)
            dist.send_object_list([{"shape": (2, 3)}, "more"], dst=1)
        else:
            received, objects = on_card(0, 0), [None, None]
            dist.recv(received, 0)
            dist.recv_object_list(objects, src=0)
            say("received", received.tolist())
            say("objects", objects)
        """
    )
    assert done.everywhere("all") == ["[(0, 10), (1, 60)]"] * 2, done.err[-2000:]
    assert done.everywhere("broadcast") == [str([("a" * 33, 1), {"b": 2}, 7])] * 2
    assert done.everywhere("scattered") == ["for 0 ", "for 1 for 1 "]
    assert done.said[1, "gathered"] == "[('from', 0), ('from', 1)]"
    assert done.said[1, "received"] == "[5, 6]"
    assert done.said[1, "objects"] == "[{'shape': (2, 3)}, 'more']"
    assert left_behind(done.folder) == []


@pytest.mark.once
def test_numbers_and_groups_of_four(ranks):
    done = ranks(
        """
        total = on_card(rank + 1.0)
        dist.all_reduce(total)
        most = on_card(rank + 1)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        say("reduced", [total.item(), most.item()])
        groups = [dist.new_group([i for i in range(world) if i % 2 == k]) for k in range(2)]
        part = on_card(10 * rank + 1)
        dist.all_reduce(part, group=groups[rank % 2])
        say("group", part.item())
        received = torch.zeros(world, dtype=torch.int64).cuda()
        dist.all_to_all_single(received, (torch.arange(world) + 10 * rank).cuda())
        say("exchanged", received.tolist())
        scattered = on_card(0)
        dist.reduce_scatter_tensor(scattered, (torch.arange(world) + rank).cuda())
        say("scattered", scattered.item())
        if rank == 0:
            time.sleep(0.5)
            open(__file__ + ".written", "w").close()
        dist.barrier()
        say("written", os.path.exists(__file__ + ".written"))
        """,
        count=4,
    )
    assert done.everywhere("reduced", 4) == ["[10.0, 4]"] * 4, done.err[-2000:]
    assert done.everywhere("group", 4) == ["22", "42", "22", "42"]
    assert done.everywhere("exchanged", 4) == [str([10 * other + rank for other in range(4)]) for rank in range(4)]
    assert done.everywhere("scattered", 4) == [str(4 * rank + 6) for rank in range(4)]
    assert done.everywhere("written", 4) == ["True"] * 4, "a barrier that waits"


@pytest.mark.slow
@pytest.mark.once
def test_pipelining(ranks):
    done = ranks(
        """
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
        device = torch.device("cuda", 0)
        for schedule in (ScheduleGPipe, Schedule1F1B):
            model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8 * (8 - 7 * rank))).to(device)
            stage = schedule(PipelineStage(model, rank, 2, device), n_microbatches=4, loss_fn=lambda out, to: (out - to).pow(2).mean())
            if rank == 0:
                stage.step(torch.randn(16, 64, device=device))
            else:
                stage.step(target=torch.randn(16, 8, device=device))
            say(schedule.__name__, model[0].weight.grad is not None)
        """,
        "torch._dynamo",
    )
    assert done.everywhere("ScheduleGPipe") == done.everywhere("Schedule1F1B") == ["True"] * 2, done.err[-2000:]


@pytest.mark.once
@pytest.mark.parametrize("end", [pytest.param("raise ValueError('no')", marks=pytest.mark.slow), "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_rank_that_ends_early_hangs_nobody(ranks, end):
    done = ranks(
        f"""
        total = on_card(1)
        dist.all_reduce(total)
        say("before", total.item())
        if rank == 1:
            {end}
        dist.all_reduce(total)
        say("after", total.item())
        """
    )
    assert done.everywhere("before") == ["2", "2"], done.err[-2000:]
    assert done.said.get((0, "after")) in (None, "0")
    assert left_behind(done.folder) == []


@pytest.mark.once
def test_all_ranks_end_when_the_supervisor_is_killed(ranks):
    run, temporary = ranks(
        """
        dist.all_reduce(on_card(1))
        say("process", os.getpid())
        if rank == 1:
            time.sleep(600)
        dist.barrier()
        """,
        wait=False,
    )
    processes = {}
    try:
        for line in run.stderr:
            processes.update(re.findall(r"@(\d) process=(\d+)", line))
            if len(processes) == 2:
                break
        run.kill()
        run.wait(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (left_behind(temporary) or any(map(lives, processes.values()))):
            time.sleep(0.05)
        assert not any(map(lives, processes.values())) and not left_behind(temporary)
    finally:
        run.stderr.close()
        for process in processes.values():
            if os.path.exists(f"/proc/{process}"):
                os.kill(int(process), signal.SIGKILL)
