// Counts what a program asks of a store. With PLEACH_LEVELDB_COUNTERS=DIRECTORY each open store has a file there, which is
// mapped and so is up to date even after a kill. `Cluster.counters` in `scripts/ceph_cluster.py` reads it. Without the variable
// nothing is counted.

#pragma once

#include <atomic>
#include <cstdint>

struct Counters {
    bool wanted;
    char store[247];
    std::atomic<uint64_t> gets, puts, deletes, batches, iterators, seeks, steps;

    // The counters of the store at `name`; they live as long as the process.
    static Counters* of_store(const char* name);

    void count(std::atomic<uint64_t> Counters::*what) {
        if (wanted) (this->*what).fetch_add(1, std::memory_order_relaxed);
    }
};

static_assert(sizeof(Counters) == 248 + 7 * 8, "scripts/ceph_cluster.py reads this layout");
