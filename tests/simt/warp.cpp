// What the lanes of a warp do together.
#include <fmt/format.h>

#include "tests/simt/block.h"

namespace sluice::simt {

std::string_view name_of(WarpOperation operation) {
  switch (operation) {
    case WarpOperation::kSyncWarp:
      return "sync_warp";
    case WarpOperation::kShuffle:
      return "shuffle";
    case WarpOperation::kBallot:
      return "ballot";
    case WarpOperation::kLoadMatricesX2:
      return "load_matrices_x2";
    case WarpOperation::kLoadMatricesX4:
      return "load_matrices_x4";
    case WarpOperation::kMma:
      return "mma_s8";
  }
  return "";
}

namespace {

bool is_same(const Meeting& a, const Meeting& b) {
  return a.operation == b.operation && a.mask == b.mask && a.site.line == b.site.line;
}

}  // namespace

std::array<std::uint32_t, 4> Block::meet(const Meeting& meeting) {
  const std::uint32_t warp = current_->who.thread / 32;
  const std::uint32_t self = 1u << current_->who.thread % 32;
  Gathering& gathering = gatherings_[warp];
  current_->meeting = meeting;
  bool complete_now = false;
  // Who joins others of the same meeting, while nobody waits for anything else, needs no further
  // check: the first one has looked at everybody whom the mask names.
  if (gathering.waiting != 0 && !gathering.mixed && (meeting.mask & self) != 0 &&
      is_same(gathering.first, meeting)) {
    complete_now = (gathering.waiting | self) == meeting.mask;
  } else {
    complete_now = check_meeting(warp, meeting);
    gathering.mixed = gathering.waiting != 0;
    if (!gathering.mixed) gathering.first = meeting;
  }
  if (complete_now) {
    gathering.waiting &= ~meeting.mask;
    complete(warp, meeting);
  } else {
    gathering.waiting |= self;
    wait(Status::kInWarp);
  }
  return current_->meeting.out;
}

// Whether the running lane may wait in a meeting; true: it is the last one to arrive.
bool Block::check_meeting(std::uint32_t warp, const Meeting& meeting) {
  const std::uint32_t self = current_->who.thread % 32;
  const std::uint32_t mask = meeting.mask;
  if ((mask >> self & 1) == 0) {
    fault(meeting.site, fmt::format("{} with mask {:#010x}, which does not name the lane itself",
                                    name_of(meeting.operation), mask));
  }
  bool complete_now = true;
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0 || i == self) continue;
    if (!exists(warp, i) || lane(warp, i).status == Status::kDone) {
      fault(meeting.site, fmt::format("{} with mask {:#010x}, which names lane {}: it {}",
                                      name_of(meeting.operation), mask, i,
                                      exists(warp, i) ? "has left" : "does not exist"));
    }
    const Thread& other = lane(warp, i);
    if (other.status != Status::kInWarp) {
      complete_now = false;
      continue;
    }
    const bool same = is_same(other.meeting, meeting);
    // The other lane may wait for something that comes first, but not each for the other.
    if (!same && (other.meeting.mask >> self & 1) != 0) {
      fault(meeting.site, fmt::format("{} with mask {:#010x}, while {}", name_of(meeting.operation),
                                      mask, waiting_at(other)));
    }
    if (!same) complete_now = false;
  }
  return complete_now;
}

// Called by the last lane to arrive.
void Block::complete(std::uint32_t warp, const Meeting& meeting) {
  switch (meeting.operation) {
    case WarpOperation::kSyncWarp:
      synchronize(warp, meeting.mask);
      break;
    case WarpOperation::kShuffle:
      shuffle(warp, meeting.mask);
      break;
    case WarpOperation::kBallot:
      ballot(warp, meeting.mask);
      break;
    case WarpOperation::kLoadMatricesX2:
      load_matrices(warp, 2);
      break;
    case WarpOperation::kLoadMatricesX4:
      load_matrices(warp, 4);
      break;
    case WarpOperation::kMma:
      multiply(warp);
      break;
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((meeting.mask >> i & 1) != 0) lane(warp, i).status = Status::kReady;
  }
}

// All of the mask now come after everything that any of them did or saw.
void Block::synchronize(std::uint32_t warp, std::uint32_t mask) {
  std::array<std::uint32_t, 32> seen = {};
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const Accessor& who = lane(warp, i).who;
    for (std::uint32_t j = 0; j < 32; ++j) seen[j] = std::max(seen[j], who.seen[j]);
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) seen[i] = std::max(seen[i], lane(warp, i).who.clock);
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    lane(warp, i).who.seen = seen;
    ++lane(warp, i).who.clock;
  }
}

void Block::shuffle(std::uint32_t warp, std::uint32_t mask) {
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    Meeting& meeting = lane(warp, i).meeting;
    const std::uint32_t from = meeting.in[1];
    if (from >= 32 || (mask >> from & 1) == 0) {
      fault(meeting.site, fmt::format("shuffle in which lane {} reads lane {}, which mask {:#010x} "
                                      "does not name",
                                      i, from, mask));
    }
    meeting.out[0] = lane(warp, from).meeting.in[0];
  }
}

void Block::ballot(std::uint32_t warp, std::uint32_t mask) {
  std::uint32_t votes = 0;
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && lane(warp, i).meeting.in[0] != 0) votes |= 1u << i;
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) lane(warp, i).meeting.out[0] = votes;
  }
}

// PTX ISA, "Warp-level Matrix Load Instruction: ldmatrix": lane 8 m + r names row r of matrix m,
// and lane L receives word L % 4 of row L / 4 of each matrix. The reads count as those of the lanes
// that receive, since it is these that must come after whoever wrote the row.
void Block::load_matrices(std::uint32_t warp, std::uint32_t count) {
  for (std::uint32_t m = 0; m < count; ++m) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      const Meeting& row = lane(warp, 8 * m + i / 4).meeting;
      if (row.offset % 16 != 0) {
        fault(row.site,
              fmt::format("matrix row at shared offset {}, not a multiple of 16", row.offset));
      }
      Thread& receiver = lane(warp, i);
      shared_.read(receiver.who, row.offset + 4 * (i % 4), &receiver.meeting.out[m], 4, row.site);
    }
  }
}

// Fragments: see cuda/simt.h. First the two matrices are put together, then multiplied plainly.
void Block::multiply(std::uint32_t warp) {
  std::int32_t a[16][32];
  std::int32_t b[32][8];
  const auto byte = [](std::uint32_t word, std::uint32_t i) {
    return std::int32_t{static_cast<std::int8_t>(word >> (8 * i) & 0xff)};
  };
  for (std::uint32_t i = 0; i < 32; ++i) {
    const Meeting& meeting = lane(warp, i).meeting;
    const std::uint32_t g = i / 4;
    const std::uint32_t t = i % 4;
    for (std::uint32_t j = 0; j < 4; ++j) {
      for (std::uint32_t w = 0; w < 4; ++w) {
        a[g + 8 * (w % 2)][16 * (w / 2) + 4 * t + j] = byte(meeting.in[w], j);
      }
      for (std::uint32_t w = 0; w < 2; ++w) b[16 * w + 4 * t + j][g] = byte(meeting.in[4 + w], j);
    }
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    Meeting& meeting = lane(warp, i).meeting;
    for (std::uint32_t w = 0; w < 4; ++w) {
      const std::uint32_t row = i / 4 + 8 * (w / 2);
      const std::uint32_t column = 2 * (i % 4) + w % 2;
      std::uint32_t sum = meeting.in[6 + w];  // wraps, as without .satfinite
      for (std::uint32_t k = 0; k < 32; ++k) {
        sum += static_cast<std::uint32_t>(a[row][k] * b[k][column]);
      }
      meeting.out[w] = sum;
    }
  }
}

}  // namespace sluice::simt
