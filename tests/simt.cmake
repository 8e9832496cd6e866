# GPU code without a GPU: the emulator, the kernels in it, and seeded faults. None of it needs CUDA. Of it, only
# the emulator runs with sanitizers; its own checks of the kernels are stricter than theirs.
add_library(sluice_simt STATIC simt/block.cpp simt/fiber.cpp simt/memory.cpp simt/shared_memory.cpp simt/warp.cpp)
target_link_libraries(sluice_simt PUBLIC sluice_base fmt::fmt)
target_compile_definitions(sluice_simt PUBLIC SLUICE_SIMT_EMULATED)
sluice_test(simt_emulator LINK sluice_simt)
sluice_test(simt_kernels PLAIN OPTIMISED LINK sluice_simt sluice_cuda_pack sluice_kernels_testing)
sluice_test(simt_attention PLAIN OPTIMISED LINK sluice_simt sluice_kernels_testing)
sluice_test(simt_gemm PLAIN OPTIMISED LINK sluice_simt sluice_cuda_pack sluice_kernels_testing)
sluice_test(simt_rows PLAIN OPTIMISED LINK sluice_simt sluice_kernels_testing)

# The whole backend in it: the same host code and launches as for a real GPU.
add_library(sluice_emulated_gpu STATIC simt/launch_emulated.cpp simt/runtime_emulated.cpp ${SLUICE_CUDA_HOST_SOURCES})
target_link_libraries(sluice_emulated_gpu PUBLIC sluice_simt sluice_backend sluice_cuda_pack)
set_source_files_properties(simt/launch_emulated.cpp PROPERTIES COMPILE_OPTIONS -O1)
sluice_test(cuda_backend PLAIN COST 95 LINK sluice_emulated_gpu sluice_reference_model sluice_model_maker)
sluice_test(cuda_int4 PLAIN COST 60 LINK sluice_emulated_gpu sluice_engine sluice_model_maker)
set_tests_properties(cuda_backend cuda_int4 PROPERTIES TIMEOUT 600)
add_executable(gpu_digest_emulated ${CMAKE_SOURCE_DIR}/tools/gpu_digest.cpp)
target_link_libraries(gpu_digest_emulated PRIVATE sluice_emulated_gpu sluice_model_maker)
include(${CMAKE_SOURCE_DIR}/tools/gpu_bench/sources.cmake)
add_executable(gpu_bench_emulated ${SLUICE_GPU_BENCH_SOURCES})
target_link_libraries(gpu_bench_emulated PRIVATE sluice_emulated_gpu)
add_test(NAME gpu_bench COMMAND gpu_bench_emulated --quick)
set_tests_properties(gpu_bench PROPERTIES LABELS not_sanitized)
# The program as it is with a GPU.
add_executable(sluice_emulated ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
target_link_libraries(sluice_emulated PRIVATE sluice_cli sluice_emulated_gpu)
target_compile_definitions(sluice_emulated PRIVATE SLUICE_VERSION="${PROJECT_VERSION}")
add_test(NAME cli_gpu COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cli_gpu_test.py $<TARGET_FILE:sluice_emulated>
                              $<TARGET_FILE:make_model>)
set_tests_properties(cli_gpu PROPERTIES TIMEOUT 300 LABELS not_sanitized)
sluice_test(gpu_fit PLAIN LINK sluice_cli sluice_emulated_gpu sluice_model_maker)
if(SLUICE_CUDA)  # on a GPU, by scripts/gpu_check.sh
  add_executable(test_cuda_device cuda_backend_test.cpp cuda_int4_test.cpp)
  target_compile_definitions(test_cuda_device PRIVATE SLUICE_ON_DEVICE)
  target_link_libraries(test_cuda_device PRIVATE sluice_test_main sluice_gpu sluice_engine sluice_reference_model sluice_model_maker)
endif()

# The copies with faults are made when configuring, so that clang-tidy finds them too.
set(kernels ${CMAKE_SOURCE_DIR}/cuda/kernels)
set(mutants_dir ${CMAKE_CURRENT_BINARY_DIR}/mutants)
file(MAKE_DIRECTORY ${mutants_dir})
foreach(output mutants.h row_mutants.cpp attention_mutants.h)
  get_filename_component(script ${output} NAME_WE)
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/simt/${script}.py ${kernels}
                          ${mutants_dir}/${output}
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(GLOB kernel_files ${kernels}/*.cuh)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  simt/mutants.py simt/row_mutants.py simt/attention_mutants.py ${kernels}/../arguments.h ${kernel_files})
sluice_test(simt_faults PLAIN LINK sluice_simt sluice_cuda_pack sluice_kernels_testing)
target_include_directories(test_simt_faults PRIVATE ${mutants_dir})
sluice_test(simt_attention_faults PLAIN LINK sluice_simt sluice_kernels_testing)
target_include_directories(test_simt_attention_faults PRIVATE ${mutants_dir})
sluice_test(simt_rows_faults PLAIN LINK sluice_simt sluice_kernels_testing)
target_sources(test_simt_rows_faults PRIVATE ${mutants_dir}/row_mutants.cpp)
set_source_files_properties(${mutants_dir}/row_mutants.cpp PROPERTIES COMPILE_OPTIONS -O0)

# nvcc takes the kernels for two targets, and the hot ones spill nothing.
add_test(NAME cuda_kernels COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/kernel_report.py
                                   --nvcc ${SLUICE_NVCC} --targets 75,90)
set_tests_properties(cuda_kernels PROPERTIES TIMEOUT 600 LABELS not_sanitized SKIP_RETURN_CODE 77)
if(SLUICE_NVCC)  # the check for GPU machines, without the GPU
  add_test(NAME gpu_check_dry_run COMMAND ${CMAKE_SOURCE_DIR}/scripts/gpu_check.sh --dry-run --quick)
  set_tests_properties(gpu_check_dry_run PROPERTIES TIMEOUT 600 LABELS not_sanitized RUN_SERIAL ON)
endif()
