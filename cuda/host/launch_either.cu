#include "cuda/host/launch_either.h"

#include "cuda/host/queue_matvec.h"

namespace sluice::cuda {

void launch_matvec_by(Arithmetic arithmetic, Device& device, TileKind kind,
                      const MatvecArgs& args) {
  visit_tiles(kind, [&](auto tiles) {
    using Tiles = decltype(tiles);
    if (arithmetic == Arithmetic::kDp4a) {
      queue_matvec_dp4a<Tiles, kMostEitherRows>(device, args, 1);
    } else {
      queue_matvec_mma<Tiles>(device, args, 1);
    }
  });
}

}  // namespace sluice::cuda
