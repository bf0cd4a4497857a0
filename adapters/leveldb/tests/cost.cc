// Puts and gets by LevelDB's C++ class, to compare with Pleach's Rust interface: cost DIRECTORY KEYS GETS
//
// It prints nanoseconds of a put and of a get. crates/pleach-leveldb/examples/cost.rs is its twin: the same keys in the same
// order, values, options and prints. All data is cached when gets are measured.

#include <leveldb/cache.h>
#include <leveldb/db.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t VALUE_LENGTH = 100;

// SplitMix64.
uint64_t mix(uint64_t n) {
    uint64_t z = n * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// Made when it is needed: a list of keys would be another memory that a get waits for.
struct Key {
    uint64_t parts[2];

    explicit Key(uint64_t n) : parts{mix(n + 1), 0} { parts[1] = mix(parts[0]); }
    leveldb::Slice slice() const { return leveldb::Slice(reinterpret_cast<const char*>(parts), sizeof parts); }
};

void check(const leveldb::Status& status) {
    if (status.ok()) return;
    fprintf(stderr, "%s\n", status.ToString().c_str());
    exit(1);
}

using Clock = std::chrono::steady_clock;

void print(const char* what, Clock::time_point started, size_t calls) {
    printf("%s %.1f\n", what, std::chrono::duration<double, std::nano>(Clock::now() - started).count() / static_cast<double>(calls));
}

size_t get_all(leveldb::DB* db, const std::vector<uint64_t>& order) {
    size_t bytes = 0;
    std::string value;
    for (uint64_t n : order) {
        check(db->Get(leveldb::ReadOptions(), Key(n).slice(), &value));
        bytes += value.size();
    }
    return bytes;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const size_t count = strtoull(argv[2], nullptr, 10), gets = strtoull(argv[3], nullptr, 10);
    std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(256 << 20));
    leveldb::Options options;
    options.create_if_missing = true;
    options.compression = leveldb::kNoCompression;
    options.write_buffer_size = 64 << 20;
    options.block_cache = cache.get();
    leveldb::DB* opened = nullptr;
    check(leveldb::DB::Open(options, argv[1], &opened));
    std::unique_ptr<leveldb::DB> db(opened);
    const std::string value(VALUE_LENGTH, 'v');

    auto started = Clock::now();
    for (size_t n = 0; n < count; n++) {
        check(db->Put(leveldb::WriteOptions(), Key(n).slice(), value));
    }
    print("put", started, count);

    db->CompactRange(nullptr, nullptr);
    std::vector<uint64_t> order(gets), all(count);
    for (size_t n = 0; n < gets; n++) order[n] = mix(n ^ (uint64_t{1} << 60)) % count;
    for (size_t n = 0; n < count; n++) all[n] = n;
    get_all(db.get(), all);
    started = Clock::now();
    const size_t bytes = get_all(db.get(), order);
    print("get", started, gets);
    if (bytes != gets * VALUE_LENGTH) {
        fprintf(stderr, "a value was not found\n");
        return 1;
    }
    return 0;
}
