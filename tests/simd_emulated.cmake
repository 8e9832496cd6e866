# AVX-512 and AVX-VNNI kernels compiled against SIMDe (libsimde-dev), where that is installed.
find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h)
if(NOT SIMDE_INCLUDE_DIR OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  message(WARNING "Not testing the AVX-512 and AVX-VNNI kernels by emulation: SIMDe not found (libsimde-dev)")
  return()
endif()
sluice_test(simd_emulated LINK sluice_kernels_testing)
set(emulated_units ${CMAKE_SOURCE_DIR}/src/backend/cpu/avx512.cpp ${CMAKE_SOURCE_DIR}/src/backend/cpu/avxvnni.cpp)
target_sources(test_simd_emulated PRIVATE ${emulated_units})
# -mfma: SIMDe's own multiply-add rounds twice. Little optimisation and no forced inlining, or the
# compiler takes minutes.
set(emulation_options -mavx2 -mfma -mf16c -O1 -Wno-psabi -w)
if(SLUICE_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND emulation_options -fno-sanitize=undefined --param=asan-instrumentation-with-call-threshold=0)
endif()
set_source_files_properties(${emulated_units} PROPERTIES
  COMPILE_DEFINITIONS "SLUICE_EMULATE_SIMD;SIMDE_NO_INLINE"
  COMPILE_OPTIONS "${emulation_options}")
target_include_directories(test_simd_emulated SYSTEM PRIVATE ${SIMDE_INCLUDE_DIR})
