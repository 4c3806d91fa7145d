"""The capture layer: runs inside the user's Python under `gpucast run` and `gpucast profile`. Standard library only, Python 3.9 and later.

    importhook   notices `import torch`
    libraries    puts the virtual GPU's libraries in place before PyTorch asks for NVIDIA's
    capture      one process's capture: arms at the first CUDA call, ends it, writes it
    hooks        what is patched and hooked in PyTorch, and what each hook records
    what_if      changes to how the script trains, under `--what-if`
    recorder     marks, modules and tensors, kept in memory until the end
    history      the allocator's history and the recorder's, as lines of a capture file
    session      the files through which this process and the supervisor speak
    probe        what `gpucast doctor` runs

    profile_capture   `gpucast profile`: one process under PyTorch's profiler, from `import torch` to its trace
    profile_marks     the marks and tables of tensors that it adds
    profile_device    the CPU in the place of the CUDA device that the script asks for
    profile_cuda      torch.cuda with one card that has nothing to do

Nothing here may break the user's program: each hook is guarded, and one that fails is switched off with a warning in the report.
"""
