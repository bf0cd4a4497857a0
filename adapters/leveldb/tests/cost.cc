// Puts and gets by LevelDB's C++ class, to compare with Pleach's Rust interface: cost DIRECTORY KEYS GETS
//
// It prints nanoseconds of a put and of a get. crates/pleach-leveldb/examples/cost.rs is its twin: the same keys in the same
// order, values, options and prints. All data is cached when gets are measured.

#include <leveldb/cache.h>
#include <leveldb/db.h>

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t KEY_LENGTH = 16;
constexpr size_t VALUE_LENGTH = 100;

// SplitMix64.
class Random {
  public:
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

  private:
    uint64_t state_ = 1;
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

size_t get_all(leveldb::DB* db, const std::string& keys, const std::vector<size_t>& order) {
    size_t bytes = 0;
    std::string value;
    for (size_t n : order) {
        check(db->Get(leveldb::ReadOptions(), leveldb::Slice(keys.data() + n * KEY_LENGTH, KEY_LENGTH), &value));
        bytes += value.size();
    }
    return bytes;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const size_t count = strtoull(argv[2], nullptr, 10), gets = strtoull(argv[3], nullptr, 10);
    Random random;
    std::string keys;
    for (size_t n = 0; n < count; n++) {
        char key[KEY_LENGTH + 1];
        snprintf(key, sizeof key, "%016" PRIx64, random.next());
        keys.append(key, KEY_LENGTH);
    }
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
        check(db->Put(leveldb::WriteOptions(), leveldb::Slice(keys.data() + n * KEY_LENGTH, KEY_LENGTH), value));
    }
    print("put", started, count);

    db->CompactRange(nullptr, nullptr);
    std::vector<size_t> order(gets), all(count);
    for (size_t& n : order) n = random.next() % count;
    for (size_t n = 0; n < count; n++) all[n] = n;
    get_all(db.get(), keys, all);
    started = Clock::now();
    const size_t bytes = get_all(db.get(), keys, order);
    print("get", started, gets);
    if (bytes != gets * VALUE_LENGTH) {
        fprintf(stderr, "a value was not found\n");
        return 1;
    }
    return 0;
}
