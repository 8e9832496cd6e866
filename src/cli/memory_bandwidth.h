// How fast this machine reads memory: the wall that decoding runs against.
#pragma once

#include <atomic>

namespace sluice::cli {

// Bytes per second that `threads` threads read together from memory (not from caches): the best of
// a few passes over 128 MiB that were flushed out of the caches. Takes about a tenth of a second. 0
// when it can't be measured, or `cancel` became true.
double measure_read_bandwidth(unsigned threads, const std::atomic<bool>& cancel);

}  // namespace sluice::cli
