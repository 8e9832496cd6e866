# GPU code without a GPU: the emulator, the kernels in it, and seeded faults. None of it needs CUDA.
add_library(sluice_simt STATIC simt/block.cpp simt/fiber.cpp simt/memory.cpp simt/shared_memory.cpp simt/warp.cpp)
target_link_libraries(sluice_simt PUBLIC sluice_base fmt::fmt)
target_compile_definitions(sluice_simt PUBLIC SLUICE_SIMT_EMULATED)
sluice_test(simt_emulator LINK sluice_simt)
sluice_test(simt_kernels LINK sluice_simt sluice_cuda_pack sluice_kernels_testing)
sluice_test(simt_attention LINK sluice_simt sluice_kernels_testing)

# The copies with faults are made when configuring, so that clang-tidy finds them too.
set(kernels ${CMAKE_SOURCE_DIR}/cuda/kernels)
set(mutants_dir ${CMAKE_CURRENT_BINARY_DIR}/mutants)
file(MAKE_DIRECTORY ${mutants_dir})
execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/simt/mutants.py ${kernels} ${mutants_dir}/mutants.h
                COMMAND_ERROR_IS_FATAL ANY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  simt/mutants.py ${kernels}/quantize.cuh ${kernels}/matvec.cuh ${kernels}/matvec_dp4a.cuh ${kernels}/matvec_mma.cuh)
sluice_test(simt_faults LINK sluice_simt sluice_cuda_pack sluice_kernels_testing)
target_include_directories(test_simt_faults PRIVATE ${mutants_dir})
execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/simt/attention_mutants.py ${kernels}
                        ${mutants_dir}/attention_mutants.h
                COMMAND_ERROR_IS_FATAL ANY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  simt/attention_mutants.py ${kernels}/rope.cuh ${kernels}/attention.cuh)
sluice_test(simt_attention_faults LINK sluice_simt sluice_kernels_testing)
target_include_directories(test_simt_attention_faults PRIVATE ${mutants_dir})

# nvcc takes the kernels for two targets, and the hot ones spill nothing.
add_test(NAME cuda_kernels COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/kernel_report.py
                                   --nvcc ${SLUICE_NVCC} --targets 75,90)
set_tests_properties(cuda_kernels PROPERTIES TIMEOUT 600 LABELS not_sanitized SKIP_RETURN_CODE 77)
