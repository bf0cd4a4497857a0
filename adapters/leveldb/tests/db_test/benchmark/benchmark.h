// The part of Google Benchmark that LevelDB's db_test.cc names. Its benchmark measures LevelDB's own manifest. It is not
// registered, so the compiler leaves it out with all that it would need of LevelDB.

#pragma once

#include <cstdint>

namespace benchmark {

class State {
  public:
    int* begin() { return nullptr; }
    int* end() { return nullptr; }
    int64_t range(int) const { return 0; }
    uint64_t iterations() const { return 0; }
};

struct Unregistered {
    const Unregistered* Arg(int64_t) const { return this; }
};

inline constexpr Unregistered unregistered;

inline void RunSpecifiedBenchmarks() {}

}  // namespace benchmark

#define BENCHMARK(function) [[maybe_unused]] static const benchmark::Unregistered* of_##function = (&benchmark::unregistered)
