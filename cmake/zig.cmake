# Toolchain of the wheel: clang and libc++ (static) against the glibc 2.17 of 2012, so that the wheel installs nearly everywhere.
# ZIG in the environment is the `zig` program of PyPI's ziglang.
if(NOT EXISTS "$ENV{ZIG}")
  message(FATAL_ERROR "Set ZIG to the zig program, or build the wheel with: make wheel")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER $ENV{ZIG} c++ -target x86_64-linux-gnu.2.17)
# zig adds checks of undefined behaviour to what is not optimised; the warnings are about GCC's options.
# -O2 here only saves CMake's own checks a second libc++, which zig compiles once for each mode.
set(CMAKE_CXX_FLAGS_INIT "-O2 -fno-sanitize=undefined -Wno-unused-command-line-argument")
