"""The figures of Holistic Trace Analysis and TensorBoard's profiler plugin for a trace: one line of JSON. Run by traces.py, in an environment that has both.

python read_trace.py FOLDER TRACE
"""

import json
import sys


def by_hta(path):
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/", include_last_profiler_step=True)
    time = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    by_type, _ = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    events = analysis.t.get_trace(0)
    categories = events["cat"].map(dict(enumerate(analysis.t.symbol_table.get_sym_table())))
    return {
        "count": int(categories.isin(["kernel", "gpu_memcpy", "gpu_memset"]).sum()),
        "kernels": int((categories == "kernel").sum()),
        "microseconds": float(by_type["sum"].sum()),
        "launches": len(analysis.get_cuda_kernel_launch_stats(visualize=False)[0]),
        "computing": float(time["compute_time_pctg"]),
        "other": float(time["non_compute_time_pctg"]),
        "idle": float(time["idle_time_pctg"]),
    }


def by_plugin(folder):
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.loader import RunLoader

    run = RunLoader("run", folder, io.Cache()).load()
    (profile,) = [one for one in run.profiles.values() if hasattr(one, "kernel_table")]
    calls = [column["name"] for column in profile.kernel_table["data"]["columns"]].index("Calls")
    summary = {line["title"]: line["value"] for line in profile.gpu_summary}
    return {
        "views": [view.display_name for view in run.views],
        "kernels": sum(int(row[calls]) for row in profile.kernel_table["data"]["rows"]),
        "steps": len({row[0] for row in profile.overview["steps"]["rows"]}),
        "gpu_percent": float(summary["GPU Utilization"].split()[0]),
        "multiprocessors_percent": float(summary["Est. SM Efficiency"].split()[0]),
    }


if __name__ == "__main__":
    print(json.dumps({"hta": by_hta(sys.argv[2]), "plugin": by_plugin(sys.argv[1])}))
