# For a GPU in tools/CMakeLists.txt, for the emulator in tests/simt.cmake.
set(SLUICE_GPU_BENCH_SOURCES)
foreach(part attention caches crossover made_up_model main matrices matvec models timing)
  list(APPEND SLUICE_GPU_BENCH_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${part}.cpp)
endforeach()
