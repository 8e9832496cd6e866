// The launches of the CUDA backend as the emulator's: the kernels' own source as ordinary C++.
#include "cuda/host/launch.cu"  // NOLINT(bugprone-suspicious-include)
