// The kernels that go through rows, as they are or with a fault (tests/simt/row_mutants.py).
#pragma once

#include <string>
#include <vector>

#include "cuda/arguments.h"

namespace sluice::simt {

struct RowKernels {
  std::string name;
  std::string what;  // is wrong
  void (*norm)(cuda::NormArgs);
  void (*activate)(cuda::ActivateArgs);
  void (*softcap)(cuda::SoftcapArgs);
  void (*matvec_float)(cuda::MatvecFloatArgs);
  void (*route)(cuda::ExpertArgs);
  void (*order)(cuda::ExpertArgs);
  void (*sum)(cuda::ExpertSumArgs);
  void (*in_chunks)(cuda::TopLogitsArgs);
  void (*of_chunks)(cuda::TopLogitsArgs);
};

#define ROW_KERNELS(name, what, space)                                                       \
  {                                                                                          \
    name, what, space::add_and_normalise, space::activate, space::softcap_logits,            \
        space::matvec_float, space::route_experts, space::order_experts, space::sum_experts, \
        space::select_in_chunks, space::select_of_chunks                                     \
  }

extern const std::vector<RowKernels> kFaultyRowKernels;

}  // namespace sluice::simt
