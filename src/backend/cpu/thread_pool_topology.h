// How many threads a process should use, from what the system says. Reads files below `root`, so
// that tests can describe any machine.
#pragma once

#include <string>
#include <vector>

namespace sluice::cpu {

// Physical cores among `cpus` (logical CPU numbers the process may run on): siblings of
// simultaneous multithreading count once. Reads
// sys/devices/system/cpu/cpuN/topology/thread_siblings_list; a CPU without that file counts as a
// core.
unsigned physical_cores(const std::string& root, const std::vector<unsigned>& cpus);

// The CPU quota of the process's control group and those above it (v1 and v2), in whole CPUs
// rounded down but at least 1; 0 where there is no limit. Reads proc/self/cgroup and
// sys/fs/cgroup.
unsigned cpu_quota(const std::string& root);

}  // namespace sluice::cpu
