"""Starts `gpucast run` on two ranks that never end and sends it a signal: end_from_outside.py GPUCAST SIGNAL. Ends with 2 once all is gone;
run.py then looks for leftovers."""

import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
gpucast, name = sys.argv[1:]
script = Path("forever.py")
script.write_text("""
import os, time, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
torch.distributed.all_reduce(x)
open(f"started{os.environ['RANK']}", "w").close()
time.sleep(1000)
""")
run = subprocess.Popen([gpucast, "run", "--", "torchrun", "--nproc-per-node", "2", str(script)])
started = time.monotonic()
while len(list(Path().glob("started*"))) < 2:
    if run.poll() is not None or time.monotonic() - started > 60:
        sys.exit("it never started")
    time.sleep(0.1)
run.send_signal(getattr(signal, name))
run.wait(30)
print(f"ended by {name}", file=sys.stderr)
sys.exit(2)
