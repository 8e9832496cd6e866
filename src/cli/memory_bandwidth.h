// How fast this machine reads memory: the wall that decoding runs against.
#pragma once

namespace sluice::cli {

// Bytes per second that `threads` threads read together from memory (not from caches): the best of
// a few passes over 64 MiB that were flushed out of the caches. Takes about a tenth of a second. 0
// when it can't be measured.
double measure_read_bandwidth(unsigned threads);

}  // namespace sluice::cli
