#!/usr/bin/env python3
"""clang-tidy over files, with a memory of clean ones: tools/clang_tidy.py -p BUILD_FOLDER [--analyze] FILE...

A file that was clean is not checked again while its text, the text of every header of ours that it reaches, its compile command, the
configuration and the tools' versions are the same. The memory is in ~/.cache/gpucast/clang-tidy (XDG_CACHE_HOME), one empty
file each. Many files are checked in groups that are parsed as one text, in a third of the time; the files of a group with a finding are then
checked one by one. The path-sensitive analyzer, two thirds of the time, runs with --analyze only, and there each file is parsed alone.
Exit code: 0 all clean, 1 not, 2 clang-tidy cannot be run.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# GCC's own warning options mean nothing to clang. The analyzer goes less deep: all the way takes four times as long.
_COMPILER_OPTIONS = [
    f"--extra-arg={word}" for word in ("-Wno-unknown-warning-option", "-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")
]
# A check's result also depends on headers of these packages, and on the tools.
_PACKAGES = (
    "libfmt-dev",
    "libcli11-dev",
    "libsimdjson-dev",
    "nlohmann-json3-dev",
    "zlib1g-dev",
    "liblz4-dev",
    "libzstd-dev",
    "libgtest-dev",
    "libc6-dev",
)


# Fewer files are checked one by one.
_GROUP_FROM, _GROUP_FILES = 16, 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clang-tidy", default="clang-tidy", help="the program (default: on PATH)")
    parser.add_argument("-p", dest="build", required=True, help="the build folder with compile_commands.json")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count(), help="files at a time")
    parser.add_argument("--slowest", type=int, default=0, help="name this number of slowest files")
    parser.add_argument("--analyze", action="store_true", help="with the path-sensitive analyzer")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    words = [*_COMPILER_OPTIONS, *([] if options.analyze else ["--checks=-clang-analyzer-*", "--extra-arg=-w"])]
    commands = {}
    for entry in json.loads((pathlib.Path(options.build) / "compile_commands.json").read_text()):
        commands[os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)] = entry.get("command") or entry["arguments"]
    tools = versions(options.clang_tidy)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gpucast" / "clang-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    keys = {file: key_of(file, commands.get(file, ""), options.build, f"{tools} {words}") for file in options.files}
    left = [file for file in options.files if not (cache / keys[file]).exists()]
    if not options.analyze and len(left) > _GROUP_FROM:
        clean = in_groups(left, commands, options, words)
        for file in clean:
            (cache / keys[file]).touch()
        left = [file for file in left if file not in clean]
        print(f"clang-tidy: {len(clean)} files are clean, checked in groups", flush=True)
    times, failed = {}, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, code, text, seconds in pool.map(
            functools.partial(check, program=options.clang_tidy, build=options.build, options=words), left
        ):
            times[file] = seconds
            if code == 0:
                (cache / keys[file]).touch()
            else:
                failed += 1
                print(text, flush=True)
    print(f"clang-tidy: {len(left)} of {len(options.files)} files checked, {failed} with findings; the others were clean before")
    for file in sorted(times, key=times.get, reverse=True)[: options.slowest]:
        print(f"  {times[file]:6.1f} s  {file}")
    return 1 if failed else 0


def versions(program):
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"tools/clang_tidy.py: {program} cannot be run: {error}; `make lint` installs it", file=sys.stderr)
        sys.exit(2)
    with contextlib.suppress(OSError):  # elsewhere than on Debian: the tools' own versions must be enough
        text += subprocess.run(["dpkg-query", "-W", *_PACKAGES], capture_output=True, text=True, check=False).stdout
    return text


def key_of(file, command, build, tools):
    digest = hashlib.sha256()
    for part in (tools, str(command).replace(str(ROOT), ""), (ROOT / ".clang-tidy").read_text()):
        digest.update(part.encode() + b"\0")
    folders = (ROOT, ROOT / "include", pathlib.Path(build).resolve() / "generated")
    for path in sorted(reached(ROOT / file, folders)):
        digest.update(str(path.name).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def reached(path, folders):
    """The file and every header of ours that it includes, directly or not."""
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for name in _INCLUDE.findall(path.read_bytes()):
            for folder in (path.parent, *folders):
                header = folder / os.fsdecode(name)
                if header.is_file():
                    left.append(header)
                    break
    return found


def in_groups(files, commands, options, words):
    """The files of groups without a finding."""
    groups = {}
    for file in filter(commands.get, files):  # what is not compiled here is checked alone
        groups.setdefault((os.path.dirname(file), tuple(compile_options(commands[file]))), []).append(file)
    folder = pathlib.Path(options.build) / "clang-tidy"
    folder.mkdir(parents=True, exist_ok=True)
    work = []
    for (_, compile_words), members in groups.items():
        work += [(members[i : i + _GROUP_FILES], compile_words) for i in range(0, len(members), _GROUP_FILES)]

    def check_group(number):
        members, compile_words = work[number]
        text = folder / f"group_{number}.cc"
        text.write_text("".join(f'#include "{ROOT / file}"\n' for file in members))
        # A file that is included looks like a header: headers define nothing, and a .cc is a strange one.
        checks = [
            word + ",-misc-definitions-in-headers,-bugprone-suspicious-include" if word.startswith("--checks=") else word for word in words
        ]
        command = [options.clang_tidy, "--quiet", *checks, str(text), "--", *compile_words]
        return members if subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0 else []

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return {file for members in pool.map(check_group, range(len(work))) for file in members}


def compile_options(command):
    """A compile command's options alone: no launcher, compiler, input or output."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    first = next(
        i for i, word in enumerate(words) if i > 0 and word.startswith("-") and re.search(r"(c|g|clang)\+\+[\d.-]*$", words[i - 1])
    )
    kept = words[first:]
    output = kept.index("-o")
    del kept[output : output + 2]
    source = kept.index("-c")
    del kept[source : source + 2]
    return kept


def check(file, program, build, options):
    start = time.monotonic()
    words = [program, "--quiet", *options, "-p", build, file]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return file, done.returncode, done.stdout + (done.stderr if done.returncode else ""), time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
