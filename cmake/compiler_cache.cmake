# ccache, where it is installed: a second build in another folder compiles nothing again. GPUCAST_CCACHE=OFF leaves it out.
# GCC only: zig (tools/wheel) has a cache of its own.
option(GPUCAST_CCACHE "Compile through ccache where it is installed" ON)
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
# A launcher of the user stays, unless it is ccache too.
if(GPUCAST_CCACHE AND CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache"))
  # ccache's manual, "Precompiled headers": without these every file that uses one is compiled each time.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
  add_compile_options(-fpch-preprocess)
endif()
