// The launches that tools and tests choose themselves, as the emulator's.
#include "cuda/host/launch_either.cu"  // NOLINT(bugprone-suspicious-include)
