// What this machine can do at best: the walls that passes run against.
#pragma once

#include <atomic>
#include <string_view>

namespace sluice::cli {

// Bytes per second that `threads` threads read together from memory (not from caches): the best of
// a few passes over 256 MiB that were flushed out of the caches. Takes about a third of a second. 0
// when it can't be measured, or `cancel` became true.
double measure_read_bandwidth(unsigned threads, const std::atomic<bool>& cancel);

// Multiplications and additions of bytes per second that `threads` threads do together in
// registers, with the instructions of the kernels `isa` ("": the best of this machine). 0 when
// `cancel` became true or there are no such kernels.
double measure_byte_products(unsigned threads, std::string_view isa,
                             const std::atomic<bool>& cancel);

}  // namespace sluice::cli
