// Compares two libraries that export LevelDB's C interface, call by call, in one process.
//
//   differential [--reference PATH] [--subject PATH] [--directory DIR] [--seed N] [--operations N] [--comparator NAME]
//               [--lose-one-in N]
//
// Both are loaded with dlopen and RTLD_LOCAL. A round opens a store of each in an empty directory and makes the same random
// calls on both: writes, batches, reads, iterators that turn, snapshots, compactions, closes. Any difference of an answer ends
// the run with exit code 1 and the seed, the round and the number of the call. Every eighth round writes to the subject
// alone, in a child that is killed, and then compares what is left with a prefix of the writes. With --lose-one-in N, one
// write in N does not reach the subject: a run must then fail, or it would notice nothing.

#include <leveldb/c.h>

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

#define FUNCTIONS(X)               \
    X(leveldb_open)                \
    X(leveldb_close)               \
    X(leveldb_put)                 \
    X(leveldb_delete)              \
    X(leveldb_write)               \
    X(leveldb_get)                 \
    X(leveldb_create_iterator)     \
    X(leveldb_create_snapshot)     \
    X(leveldb_release_snapshot)    \
    X(leveldb_property_value)      \
    X(leveldb_approximate_sizes)   \
    X(leveldb_compact_range)       \
    X(leveldb_destroy_db)          \
    X(leveldb_repair_db)           \
    X(leveldb_iter_destroy)        \
    X(leveldb_iter_valid)          \
    X(leveldb_iter_seek_to_first)  \
    X(leveldb_iter_seek_to_last)   \
    X(leveldb_iter_seek)           \
    X(leveldb_iter_next)           \
    X(leveldb_iter_prev)           \
    X(leveldb_iter_key)            \
    X(leveldb_iter_value)          \
    X(leveldb_iter_get_error)      \
    X(leveldb_writebatch_create)   \
    X(leveldb_writebatch_destroy)  \
    X(leveldb_writebatch_clear)    \
    X(leveldb_writebatch_put)      \
    X(leveldb_writebatch_delete)   \
    X(leveldb_writebatch_append)   \
    X(leveldb_options_create)      \
    X(leveldb_options_destroy)     \
    X(leveldb_options_set_comparator)        \
    X(leveldb_options_set_create_if_missing) \
    X(leveldb_options_set_error_if_exists)   \
    X(leveldb_options_set_write_buffer_size) \
    X(leveldb_options_set_cache)             \
    X(leveldb_options_set_compression)       \
    X(leveldb_comparator_create)   \
    X(leveldb_comparator_destroy)  \
    X(leveldb_readoptions_create)  \
    X(leveldb_readoptions_destroy) \
    X(leveldb_readoptions_set_verify_checksums) \
    X(leveldb_readoptions_set_fill_cache)       \
    X(leveldb_readoptions_set_snapshot)         \
    X(leveldb_writeoptions_create) \
    X(leveldb_writeoptions_destroy) \
    X(leveldb_writeoptions_set_sync) \
    X(leveldb_cache_create_lru)    \
    X(leveldb_cache_destroy)       \
    X(leveldb_free)

struct Library {
    std::string path;
#define DECLARE(name) decltype(&::name) name = nullptr;
    FUNCTIONS(DECLARE)
#undef DECLARE

    explicit Library(const std::string& path_of_library) : path(path_of_library) {
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            fprintf(stderr, "cannot load %s: %s\n", path.c_str(), dlerror());
            exit(2);
        }
#define LOAD(name)                                                            \
    name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name));         \
    if (name == nullptr) {                                                    \
        fprintf(stderr, "%s lacks %s\n", path.c_str(), #name);                \
        exit(2);                                                              \
    }
        FUNCTIONS(LOAD)
#undef LOAD
    }
};

// SplitMix64: small, and the same everywhere.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t n) { return next() % n; }
    bool one_in(uint64_t n) { return below(n) == 0; }

    size_t longest_key = 1 << 20;

  private:
    uint64_t state_;
};

// ---- comparators ------------------------------------------------------------------------------------------------------

int sign(int x) { return (x > 0) - (x < 0); }

int compare_bytes(const char* a, size_t a_len, const char* b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? sign(order) : (a_len > b_len) - (a_len < b_len);
}

int compare_reverse(void*, const char* a, size_t a_len, const char* b, size_t b_len) {
    return compare_bytes(b, b_len, a, a_len);
}

int compare_by_length(void*, const char* a, size_t a_len, const char* b, size_t b_len) {
    return a_len != b_len ? (a_len > b_len) - (a_len < b_len) : compare_bytes(a, a_len, b, b_len);
}

// Letters of both cases are equal, so different keys can be equal.
int compare_folded(void*, const char* a, size_t a_len, const char* b, size_t b_len) {
    for (size_t i = 0; i < a_len && i < b_len; i++) {
        int x = tolower(static_cast<unsigned char>(a[i])), y = tolower(static_cast<unsigned char>(b[i]));
        if (x != y) return x < y ? -1 : 1;
    }
    return (a_len > b_len) - (a_len < b_len);
}

void no_destructor(void*) {}

struct Order {
    const char* name;
    int (*compare)(void*, const char*, size_t, const char*, size_t);
    size_t longest_key = 1 << 20;
};

// Pleach knows the reverse order by RocksDB's name of it. By any other name it is an unknown order.
const Order ORDERS[] = {
    {"bytes", nullptr},
    {"reverse", compare_reverse},
    {"rocksdb.ReverseBytewiseComparator", compare_reverse, (1 << 20) - 2},
    {"length", compare_by_length},
    {"folded", compare_folded},
};

const char* order_name(void* state) { return static_cast<const Order*>(state)->name; }

// ---- a store of one library -------------------------------------------------------------------------------------------

struct Answer {
    bool failed = false;
    std::optional<std::string> key;
    std::optional<std::string> value;

    bool operator==(const Answer& other) const {
        return failed == other.failed && key == other.key && value == other.value;
    }
    std::string show() const {
        auto text = [](const std::optional<std::string>& bytes) {
            if (!bytes) return std::string("none");
            std::string shown;
            char hex[8];
            for (size_t i = 0; i < bytes->size() && i < 24; i++) {
                snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>((*bytes)[i]));
                shown += hex;
            }
            return shown + " (" + std::to_string(bytes->size()) + " bytes)";
        };
        return (failed ? "error, " : "") + std::string("key ") + text(key) + ", value " + text(value);
    }
};

struct Iterator {
    leveldb_iterator_t* handle;
    leveldb_readoptions_t* options;
};

struct Store {
    const Library& lib;
    const Order& order;
    std::string directory;
    std::string last_error;
    leveldb_options_t* options;
    leveldb_cache_t* cache;
    leveldb_comparator_t* comparator = nullptr;
    leveldb_readoptions_t* read;
    leveldb_writeoptions_t* write;
    leveldb_t* db = nullptr;
    std::vector<Iterator> iterators;
    std::vector<const leveldb_snapshot_t*> snapshots;

    Store(const Library& library, const Order& key_order, std::string path, size_t write_buffer, bool compressed)
        : lib(library), order(key_order), directory(std::move(path)) {
        options = lib.leveldb_options_create();
        cache = lib.leveldb_cache_create_lru(1 << 20);
        lib.leveldb_options_set_cache(options, cache);
        lib.leveldb_options_set_create_if_missing(options, 1);
        lib.leveldb_options_set_write_buffer_size(options, write_buffer);
        lib.leveldb_options_set_compression(options, compressed ? leveldb_snappy_compression : leveldb_no_compression);
        if (order.compare != nullptr) {
            comparator = lib.leveldb_comparator_create(const_cast<Order*>(&order), no_destructor, order.compare, order_name);
            lib.leveldb_options_set_comparator(options, comparator);
        }
        read = lib.leveldb_readoptions_create();
        lib.leveldb_readoptions_set_verify_checksums(read, 1);
        write = lib.leveldb_writeoptions_create();
        open();
    }

    ~Store() {
        close();
        lib.leveldb_readoptions_destroy(read);
        lib.leveldb_writeoptions_destroy(write);
        lib.leveldb_options_destroy(options);
        if (comparator != nullptr) lib.leveldb_comparator_destroy(comparator);
        lib.leveldb_cache_destroy(cache);
    }

    Store(const Store&) = delete;

    bool failed(char* error) {
        if (error == nullptr) return false;
        last_error = error;
        lib.leveldb_free(error);
        return true;
    }

    void open() {
        char* error = nullptr;
        db = lib.leveldb_open(options, directory.c_str(), &error);
        if (failed(error)) {
            fprintf(stderr, "%s: cannot open %s: %s\n", lib.path.c_str(), directory.c_str(), last_error.c_str());
            exit(1);
        }
    }

    void close() {
        if (db == nullptr) return;
        for (auto& iterator : iterators) drop(iterator);
        iterators.clear();
        for (auto snapshot : snapshots) lib.leveldb_release_snapshot(db, snapshot);
        snapshots.clear();
        lib.leveldb_close(db);
        db = nullptr;
    }

    void drop(Iterator& iterator) {
        lib.leveldb_iter_destroy(iterator.handle);
        lib.leveldb_readoptions_destroy(iterator.options);
    }

    bool put(const std::string& key, const std::string& value) {
        char* error = nullptr;
        lib.leveldb_put(db, write, key.data(), key.size(), value.data(), value.size(), &error);
        return failed(error);
    }

    bool remove(const std::string& key) {
        char* error = nullptr;
        lib.leveldb_delete(db, write, key.data(), key.size(), &error);
        return failed(error);
    }

    Answer get(const std::string& key, int snapshot) {
        Answer answer;
        char* error = nullptr;
        size_t length = 0;
        lib.leveldb_readoptions_set_snapshot(read, snapshot < 0 ? nullptr : snapshots[snapshot]);
        char* value = lib.leveldb_get(db, read, key.data(), key.size(), &length, &error);
        lib.leveldb_readoptions_set_snapshot(read, nullptr);
        answer.failed = failed(error);
        if (value != nullptr) {
            answer.value = std::string(value, length);
            lib.leveldb_free(value);
        }
        return answer;
    }

    void add_iterator(int snapshot, bool fill_cache) {
        leveldb_readoptions_t* its_options = lib.leveldb_readoptions_create();
        lib.leveldb_readoptions_set_fill_cache(its_options, fill_cache);
        if (snapshot >= 0) lib.leveldb_readoptions_set_snapshot(its_options, snapshots[snapshot]);
        iterators.push_back({lib.leveldb_create_iterator(db, its_options), its_options});
    }

    Answer entry(leveldb_iterator_t* iterator) {
        Answer answer;
        char* error = nullptr;
        lib.leveldb_iter_get_error(iterator, &error);
        answer.failed = failed(error);
        if (lib.leveldb_iter_valid(iterator)) {
            size_t length = 0;
            const char* key = lib.leveldb_iter_key(iterator, &length);
            answer.key = std::string(key, length);
            const char* value = lib.leveldb_iter_value(iterator, &length);
            answer.value = std::string(value, length);
        }
        return answer;
    }

    // All entries, forwards.
    std::vector<std::pair<std::string, std::string>> scan() {
        std::vector<std::pair<std::string, std::string>> entries;
        leveldb_iterator_t* iterator = lib.leveldb_create_iterator(db, read);
        for (lib.leveldb_iter_seek_to_first(iterator); lib.leveldb_iter_valid(iterator); lib.leveldb_iter_next(iterator)) {
            Answer answer = entry(iterator);
            entries.emplace_back(*answer.key, *answer.value);
        }
        char* error = nullptr;
        lib.leveldb_iter_get_error(iterator, &error);
        if (failed(error)) {
            fprintf(stderr, "%s: a scan failed: %s\n", lib.path.c_str(), last_error.c_str());
            exit(1);
        }
        lib.leveldb_iter_destroy(iterator);
        return entries;
    }
};

// ---- random keys, values, writes --------------------------------------------------------------------------------------

struct Counts {
    std::map<std::string, uint64_t> of;
    void add(const char* what) { of[what]++; }
};

std::string random_key(Random& random, Counts& counts) {
    uint64_t kind = random.below(1000);
    if (kind < 10) {
        counts.add("empty keys");
        return "";
    }
    if (kind == 10) {
        counts.add("keys of 64 KiB and more");
        // Of few different lengths, so that they are written again.
        return std::string(65536 + 65 * random.below(3), static_cast<char>('a' + random.below(3)));
    }
    if (kind == 11 && random.one_in(20)) {
        counts.add("keys of 1 MiB");
        return std::string(random.longest_key, static_cast<char>('a' + random.below(2)));
    }
    std::string key;
    if (kind < 300) {  // short, of an alphabet of both cases and of bytes at the edges
        static const char alphabet[] = {'a', 'A', 'b', 'B', 'c', '\0', '\x7f', '\x80', '\xff'};
        for (uint64_t n = random.below(5); n > 0; n--) key.push_back(alphabet[random.below(sizeof alphabet)]);
    } else if (kind < 700) {  // decimals
        key = std::to_string(random.below(3000));
        key.insert(0, 8 - key.size(), '0');
    } else {  // paths
        key = "/Home/user" + std::to_string(random.below(20)) + "/file" + std::to_string(random.below(100));
        if (random.one_in(3)) key[1] = 'h';
    }
    return key;
}

std::string random_value(Random& random) {
    uint64_t kind = random.below(100), length = random.below(120);
    if (kind < 3) length = 0;
    if (kind >= 90) length = 800 + random.below(4000);
    if (kind == 99 && random.one_in(20)) length = 100000 + random.below(100000);
    std::string value(length, '\0');
    uint64_t bits = random.next();
    for (size_t i = 0; i < length; i++) {
        if (i % 8 == 0) bits = random.one_in(2) ? random.next() : bits;
        value[i] = static_cast<char>(bits >> (8 * (i % 8)));
    }
    return value;
}

struct Change {
    std::string key;
    std::optional<std::string> value;  // none: a delete
};

// What one write does: one change, or a batch.
std::vector<Change> random_write(Random& random, Counts& counts) {
    uint64_t n = random.below(100) < 85 ? 1 : random.below(20);
    std::vector<Change> changes;
    for (uint64_t i = 0; i < n; i++) {
        Change change{random_key(random, counts), std::nullopt};
        if (!random.one_in(4)) change.value = random_value(random);
        changes.push_back(std::move(change));
    }
    return changes;
}

bool write_to(Store& store, const std::vector<Change>& changes) {
    if (changes.size() == 1) {
        const Change& change = changes[0];
        return change.value ? store.put(change.key, *change.value) : store.remove(change.key);
    }
    const Library& lib = store.lib;
    leveldb_writebatch_t* batch = lib.leveldb_writebatch_create();
    leveldb_writebatch_t* second = lib.leveldb_writebatch_create();
    lib.leveldb_writebatch_put(batch, "gone", 4, "gone", 4);
    lib.leveldb_writebatch_clear(batch);
    for (size_t i = 0; i < changes.size(); i++) {
        const Change& change = changes[i];
        leveldb_writebatch_t* to = i < changes.size() / 2 ? batch : second;
        if (change.value) {
            lib.leveldb_writebatch_put(to, change.key.data(), change.key.size(), change.value->data(), change.value->size());
        } else {
            lib.leveldb_writebatch_delete(to, change.key.data(), change.key.size());
        }
    }
    lib.leveldb_writebatch_append(batch, second);
    char* error = nullptr;
    lib.leveldb_write(store.db, store.write, batch, &error);
    lib.leveldb_writebatch_destroy(second);
    lib.leveldb_writebatch_destroy(batch);
    return store.failed(error);
}

// ---- rounds -----------------------------------------------------------------------------------------------------------

struct Run {
    Library reference, subject;
    std::string directory;
    uint64_t seed;
    const char* only_order;
    uint64_t lose_one_in;
    Counts counts;
    uint64_t calls = 0, round = 0;

    [[noreturn]] void differ(uint64_t call, const char* what, const std::string& expected, const std::string& found) {
        printf("DIFFERENCE at seed %lu, round %lu, call %lu: %s\n  %s: %s\n  %s: %s\n", seed, round, call, what,
               reference.path.c_str(), expected.c_str(), subject.path.c_str(), found.c_str());
        printf("the stores are kept in %s\n", directory.c_str());
        exit(1);
    }

    void compare(uint64_t call, const char* what, Store& a, const Answer& expected, Store& b, const Answer& found) {
        if (expected == found) return;
        std::string e = expected.show(), f = found.show();
        if (expected.failed) e += ": " + a.last_error;
        if (found.failed) f += ": " + b.last_error;
        differ(call, what, e, f);
    }

    void compare_scans(uint64_t call, const char* what, Store& a, Store& b) {
        auto expected = a.scan(), found = b.scan();
        for (size_t i = 0; i < expected.size() || i < found.size(); i++) {
            Answer x, y;
            if (i < expected.size()) x.key = expected[i].first, x.value = expected[i].second;
            if (i < found.size()) y.key = found[i].first, y.value = found[i].second;
            compare(call, what, a, x, b, y);
        }
        counts.of["entries of whole scans"] += expected.size();
    }

    std::string fresh(const char* name) {
        std::string path = directory + "/" + name;
        std::filesystem::remove_all(path);
        return path;
    }

    const Order& choose_order(Random& random) {
        const Order& chosen = ORDERS[random.below(std::size(ORDERS))];
        if (only_order == nullptr) return chosen;
        for (const Order& order : ORDERS) {
            if (strcmp(order.name, only_order) == 0) return order;
        }
        fprintf(stderr, "no comparator is named %s; there are", only_order);
        for (const Order& order : ORDERS) fprintf(stderr, " %s", order.name);
        fprintf(stderr, "\n");
        exit(2);
    }

    void compared_round(uint64_t operations) {
        Random random(seed * 1000003 + round);
        const Order& order = choose_order(random);
        random.longest_key = order.longest_key;
        size_t write_buffer = 65536 << random.below(3);
        bool compressed = random.one_in(2);
        counts.add((std::string("rounds ordered by ") + order.name).c_str());
        Store a(reference, order, fresh("reference"), write_buffer, compressed);
        Store b(subject, order, fresh("subject"), write_buffer, compressed);
        for (uint64_t call = 0; call < operations; call++, calls++) {
            uint64_t kind = random.below(1000);
            if (kind < 400) {
                auto changes = random_write(random, counts);
                counts.add(changes.size() == 1 ? "single writes" : "batches");
                Answer x, y;
                x.failed = write_to(a, changes);
                bool lost = lose_one_in != 0 && random.one_in(lose_one_in);
                y.failed = !lost && write_to(b, changes);
                compare(call, "write", a, x, b, y);
            } else if (kind < 600) {
                std::string key = random_key(random, counts);
                int snapshot = static_cast<int>(random.below(a.snapshots.size() + 1)) - 1;
                Answer x = a.get(key, snapshot), y = b.get(key, snapshot);
                counts.add(snapshot >= 0 ? "gets of a snapshot" : x.value ? "gets that found" : "gets that missed");
                compare(call, "get", a, x, b, y);
            } else if (kind < 950) {
                step_iterators(call, random, a, b);
            } else if (kind < 975) {
                change_snapshots(random, a, b);
            } else if (kind == 975) {
                counts.add("scans");
                compare_scans(call, "scan", a, b);
            } else if (kind == 976 && random.one_in(4)) {
                std::string from = random_key(random, counts), to = random_key(random, counts);
                bool all = random.one_in(3);
                counts.add("compactions of a range");
                for (Store* store : {&a, &b}) {
                    store->lib.leveldb_compact_range(store->db, all ? nullptr : from.data(), from.size(),
                                                     all ? nullptr : to.data(), to.size());
                }
            } else if (kind == 977) {
                std::string from = random_key(random, counts), to = random_key(random, counts);
                const char *starts[] = {from.data()}, *limits[] = {to.data()};
                size_t start_lengths[] = {from.size()}, limit_lengths[] = {to.size()};
                uint64_t sizes[1];
                for (Store* store : {&a, &b}) {
                    store->lib.leveldb_approximate_sizes(store->db, 1, starts, start_lengths, limits, limit_lengths, sizes);
                }
            } else if (kind == 978 && random.one_in(8)) {
                counts.add("closes and opens");
                for (Store* store : {&a, &b}) {
                    store->close();
                    store->open();
                }
            } else if (kind == 979) {
                for (const char* name : {"leveldb.stats", "leveldb.sstables", "leveldb.approximate-memory-usage",
                                         "leveldb.num-files-at-level0", "leveldb.num-files-at-level7", "leveldb.nothing"}) {
                    Answer x, y;
                    char* value = a.lib.leveldb_property_value(a.db, name);
                    if (value != nullptr) x.value = "has";
                    a.lib.leveldb_free(value);
                    value = b.lib.leveldb_property_value(b.db, name);
                    if (value != nullptr) y.value = "has";
                    b.lib.leveldb_free(value);
                    compare(call, name, a, x, b, y);
                }
            }
        }
        compare_scans(operations, "the last scan", a, b);
    }

    void step_iterators(uint64_t call, Random& random, Store& a, Store& b) {
        if (a.iterators.empty() || (a.iterators.size() < 4 && random.one_in(10))) {
            int snapshot = static_cast<int>(random.below(a.snapshots.size() + 1)) - 1;
            bool fill_cache = random.one_in(2);
            a.add_iterator(snapshot, fill_cache);
            b.add_iterator(snapshot, fill_cache);
            counts.add("iterators");
            return;
        }
        size_t i = random.below(a.iterators.size());
        if (random.one_in(60)) {
            for (Store* store : {&a, &b}) {
                store->drop(store->iterators[i]);
                store->iterators.erase(store->iterators.begin() + static_cast<std::ptrdiff_t>(i));
            }
            return;
        }
        leveldb_iterator_t *x = a.iterators[i].handle, *y = b.iterators[i].handle;
        bool valid = a.lib.leveldb_iter_valid(x);
        uint64_t move = random.below(valid ? 12 : 4);
        if (move == 0) {
            a.lib.leveldb_iter_seek_to_first(x);
            b.lib.leveldb_iter_seek_to_first(y);
        } else if (move == 1) {
            a.lib.leveldb_iter_seek_to_last(x);
            b.lib.leveldb_iter_seek_to_last(y);
        } else if (move < 4) {
            std::string key = random_key(random, counts);
            a.lib.leveldb_iter_seek(x, key.data(), key.size());
            b.lib.leveldb_iter_seek(y, key.data(), key.size());
        } else {
            bool forwards = random.one_in(2);
            for (uint64_t n = 1 + random.below(6); n > 0 && a.lib.leveldb_iter_valid(x) && b.lib.leveldb_iter_valid(y); n--) {
                compare(call, "entry of an iterator", a, a.entry(x), b, b.entry(y));
                if (forwards) {
                    a.lib.leveldb_iter_next(x);
                    b.lib.leveldb_iter_next(y);
                } else {
                    a.lib.leveldb_iter_prev(x);
                    b.lib.leveldb_iter_prev(y);
                }
                counts.add(forwards ? "steps forwards" : "steps backwards");
            }
        }
        compare(call, "entry of an iterator", a, a.entry(x), b, b.entry(y));
    }

    void change_snapshots(Random& random, Store& a, Store& b) {
        if (a.snapshots.size() < 4 && random.one_in(2)) {
            for (Store* store : {&a, &b}) store->snapshots.push_back(store->lib.leveldb_create_snapshot(store->db));
            counts.add("snapshots");
        } else if (!a.snapshots.empty()) {
            size_t i = random.below(a.snapshots.size());
            for (Store* store : {&a, &b}) {
                store->lib.leveldb_release_snapshot(store->db, store->snapshots[i]);
                store->snapshots.erase(store->snapshots.begin() + static_cast<std::ptrdiff_t>(i));
            }
        }
    }

    // The child is forked from a process that has used the library: clients do that, and open afterwards.
    void killed_round() {
        Random random(seed * 1000003 + round);
        const Order& order = choose_order(random);
        std::string path = fresh("subject");
        uint64_t writes_seed = random.next();
        auto* acknowledged = static_cast<std::atomic<uint64_t>*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        if (acknowledged == MAP_FAILED) {
            perror("mmap");
            exit(2);
        }
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            Random writes(writes_seed);
            writes.longest_key = order.longest_key;
            Counts ignored;
            Store store(subject, order, path, 65536, false);
            for (uint64_t n = 1;; n++) {
                if (write_to(store, random_write(writes, ignored))) {
                    fprintf(stderr, "write %lu failed: %s\n", n, store.last_error.c_str());
                    _exit(3);
                }
                acknowledged->store(n);
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(200000)));
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            printf("round %lu, seed %lu: the child ended by itself, status %d\n", round, seed, status);
            exit(1);
        }
        uint64_t n = acknowledged->load();
        munmap(acknowledged, 4096);
        counts.add("killed processes");
        counts.of["writes acknowledged before a kill"] += n;

        Random writes(writes_seed);
        writes.longest_key = order.longest_key;
        Store a(reference, order, fresh("reference"), 1 << 22, false);
        for (uint64_t i = 0; i < n; i++) write_to(a, random_write(writes, counts));
        Store b(subject, order, path, 65536, false);
        if (a.scan() != b.scan()) {  // the write that the kill interrupted may be there, whole
            write_to(a, random_write(writes, counts));
            counts.add("interrupted writes that were there");
        }
        compare_scans(n, "scan after a killed process", a, b);
        calls += n;
    }
};

}  // namespace

int main(int argc, char** argv) {
    std::string reference = "libleveldb.so", subject = "libpleach_leveldb.so", directory;
    uint64_t seed = static_cast<uint64_t>(time(nullptr)), operations = 200000, lose_one_in = 0;
    const char* order = nullptr;
    for (int i = 1; i < argc; i++) {
        std::string option = argv[i];
        if (i + 1 == argc) {
            fprintf(stderr, "usage: %s [--reference PATH] [--subject PATH] [--directory DIR] [--seed N] [--operations N]\n"
                            "    [--comparator NAME] [--lose-one-in N]\n", argv[0]);
            return 2;
        }
        const char* value = argv[++i];
        if (option == "--reference") reference = value;
        else if (option == "--subject") subject = value;
        else if (option == "--directory") directory = value;
        else if (option == "--seed") seed = strtoull(value, nullptr, 10);
        else if (option == "--operations") operations = strtoull(value, nullptr, 10);
        else if (option == "--comparator") order = value;
        else if (option == "--lose-one-in") lose_one_in = strtoull(value, nullptr, 10);
        else {
            fprintf(stderr, "unknown option %s\n", option.c_str());
            return 2;
        }
    }
    bool temporary = directory.empty();
    if (temporary) {
        char pattern[] = "/tmp/pleach-differential-XXXXXX";
        if (mkdtemp(pattern) == nullptr) {
            perror("mkdtemp");
            return 2;
        }
        directory = pattern;
    }
    std::filesystem::create_directories(directory);
    printf("seed %lu, %lu calls\n", seed, operations);
    Run run{Library(reference), Library(subject), directory, seed, order, lose_one_in, {}};
    for (; run.calls < operations; run.round++) {
        if (run.round % 8 == 7) {
            run.killed_round();
        } else {
            run.compared_round(std::min<uint64_t>(8000, operations - run.calls));
        }
    }
    for (auto& [what, count] : run.counts.of) printf("%10lu %s\n", count, what.c_str());
    printf("no difference in %lu calls, %lu rounds\n", run.calls, run.round);
    if (temporary) std::filesystem::remove_all(directory);
    return 0;
}
