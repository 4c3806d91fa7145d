# For the wheel: third-party libraries from GPUCAST_THIRD_PARTY, a folder that tools/wheel makes, as headers and sources. The distribution's
# compiled C++ libraries belong to its own libstdc++ and glibc and cannot be linked into a command that has to run on older systems.
foreach(library fmt CLI11 nlohmann_json tomlplusplus)
  add_library(third_party_${library} INTERFACE)
  target_include_directories(third_party_${library} SYSTEM INTERFACE ${GPUCAST_THIRD_PARTY}/include)
endforeach()
target_compile_definitions(third_party_fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(fmt::fmt ALIAS third_party_fmt)
add_library(CLI11::CLI11 ALIAS third_party_CLI11)
add_library(nlohmann_json::nlohmann_json ALIAS third_party_nlohmann_json)
add_library(tomlplusplus_headers ALIAS third_party_tomlplusplus)

add_library(third_party_simdjson STATIC ${GPUCAST_THIRD_PARTY}/src/simdjson.cpp)
target_include_directories(third_party_simdjson SYSTEM PUBLIC ${GPUCAST_THIRD_PARTY}/include)
add_library(simdjson::simdjson ALIAS third_party_simdjson)

# zlib is C: its static library needs only functions that every glibc has, and the linker takes their versions from the target's.
add_library(ZLIB::ZLIB STATIC IMPORTED)
set_target_properties(ZLIB::ZLIB PROPERTIES IMPORTED_LOCATION ${GPUCAST_THIRD_PARTY}/lib/libz.a INTERFACE_INCLUDE_DIRECTORIES ${GPUCAST_THIRD_PARTY}/include)
