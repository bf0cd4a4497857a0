// LevelDB's C++ interface over the C functions of pleach-leveldb: DB::Open, RepairDB, DestroyDB, NewLRUCache, NewMemEnv.
//
// This file is compiled twice, once for each ABI of std::string, and both objects are in the library. Everything else of
// LevelDB (Options, WriteBatch, Status as text, comparators, filters) stays with the caller's own libleveldb.
//
// The headers' classes are compiled under another namespace, one for each ABI: so what a subclass needs of its base class
// can be defined here, without a symbol that the caller's libleveldb has too. A program that loads libleveldb with
// RTLD_LOCAL, as Python does for an extension, would not let this library find them. The vtables have the same layout,
// and the entry points below get LevelDB's mangled names.

#if _GLIBCXX_USE_CXX11_ABI
#define leveldb pleach_leveldb_new_abi
#define STRING_MANGLED "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#else
#define leveldb pleach_leveldb_old_abi
#define STRING_MANGLED "Ss"
#endif

#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>
#include <leveldb/write_batch.h>

#include <leveldb/c.h>

#include <dlfcn.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "counters.h"
#include "pleach_leveldb.h"
#include "surroundings.h"

// The members of the base classes that are not defined in their headers.
namespace leveldb {

Iterator::Iterator() : cleanup_head_{nullptr, nullptr, nullptr, nullptr} {}

// The caller's libleveldb adds to this list; its RegisterCleanup knows the same layout.
Iterator::~Iterator() {
    if (cleanup_head_.IsEmpty()) return;
    cleanup_head_.Run();
    for (CleanupNode* node = cleanup_head_.next; node != nullptr;) {
        node->Run();
        CleanupNode* next = node->next;
        delete node;
        node = next;
    }
}

DB::~DB() = default;
Snapshot::~Snapshot() = default;

// The layout is that of status.h: four bytes of length, one of code, the message.
Status::Status(Code code, const Slice& msg, const Slice& msg2) {
    const size_t between = msg2.empty() ? 0 : 2;
    const uint32_t length = static_cast<uint32_t>(msg.size() + between + msg2.size());
    char* state = new char[length + 5];
    std::memcpy(state, &length, sizeof length);
    state[4] = static_cast<char>(code);
    std::memcpy(state + 5, msg.data(), msg.size());
    if (between != 0) {
        std::memcpy(state + 5 + msg.size(), ": ", 2);
        std::memcpy(state + 7 + msg.size(), msg2.data(), msg2.size());
    }
    state_ = state;
}

}  // namespace leveldb

namespace {

using leveldb::Options;
using leveldb::Slice;
using leveldb::Status;

struct Free {
    void operator()(void* memory) const { leveldb_free(memory); }
};

// The C functions begin their messages as Status::ToString does; the kind is made of that beginning.
Status to_status(char* error) {
    if (error == nullptr) return Status::OK();
    std::unique_ptr<char, Free> owned(error);
    auto rest_after = [error](const char* kind) -> const char* {
        size_t length = std::strlen(kind);
        return std::strncmp(error, kind, length) == 0 ? error + length : nullptr;
    };
    if (const char* rest = rest_after("NotFound: ")) return Status::NotFound(rest);
    if (const char* rest = rest_after("Corruption: ")) return Status::Corruption(rest);
    if (const char* rest = rest_after("Not implemented: ")) return Status::NotSupported(rest);
    if (const char* rest = rest_after("Invalid argument: ")) return Status::InvalidArgument(rest);
    if (const char* rest = rest_after("IO error: ")) return Status::IOError(rest);
    return Status::IOError(error);
}

struct ReadOptions {
    leveldb_readoptions_t* handle = leveldb_readoptions_create();

    // Snapshots of this class are those of the C interface under another type.
    explicit ReadOptions(const leveldb::ReadOptions& options) {
        leveldb_readoptions_set_verify_checksums(handle, options.verify_checksums);
        leveldb_readoptions_set_fill_cache(handle, options.fill_cache);
        leveldb_readoptions_set_snapshot(handle, reinterpret_cast<const leveldb_snapshot_t*>(options.snapshot));
    }
    ~ReadOptions() { leveldb_readoptions_destroy(handle); }
    ReadOptions(const ReadOptions&) = delete;
};

// The handles of the C interface that a store's options were made of. They live as long as the open store.
struct Held {
    leveldb_options_t* options = leveldb_options_create();
    leveldb_comparator_t* comparator = nullptr;
    leveldb_filterpolicy_t* filter_policy = nullptr;
    leveldb_cache_t* cache = nullptr;
    leveldb_logger_t* logger = nullptr;

    Held() = default;
    Held(const Held&) = delete;
    ~Held() {
        leveldb_options_destroy(options);
        if (comparator != nullptr) leveldb_comparator_destroy(comparator);
        if (filter_policy != nullptr) leveldb_filterpolicy_destroy(filter_policy);
        if (cache != nullptr) leveldb_cache_destroy(cache);
        if (logger != nullptr) pleach_leveldb_logger_destroy(logger);
    }
};

void keep(void*) {}

int compare(void* comparator, const char* a, size_t a_length, const char* b, size_t b_length) {
    return static_cast<const leveldb::Comparator*>(comparator)->Compare(Slice(a, a_length), Slice(b, b_length));
}

const char* comparator_name(void* comparator) { return static_cast<const leveldb::Comparator*>(comparator)->Name(); }

char* create_filter(void* policy, const char* const* keys, const size_t* lengths, int count, size_t* filter_length) {
    std::vector<Slice> slices;
    for (int i = 0; i < count; i++) slices.emplace_back(keys[i], lengths[i]);
    std::string filter;
    static_cast<const leveldb::FilterPolicy*>(policy)->CreateFilter(slices.data(), count, &filter);
    *filter_length = filter.size();
    char* copy = static_cast<char*>(std::malloc(filter.size() + 1));
    std::memcpy(copy, filter.data(), filter.size());
    return copy;
}

uint8_t may_match(void* policy, const char* key, size_t length, const char* filter, size_t filter_length) {
    return static_cast<const leveldb::FilterPolicy*>(policy)->KeyMayMatch(Slice(key, length), Slice(filter, filter_length));
}

const char* policy_name(void* policy) { return static_cast<const leveldb::FilterPolicy*>(policy)->Name(); }

void log_to(leveldb::Logger* logger, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    logger->Logv(format, arguments);
    va_end(arguments);
}

void log_line(void* logger, const char* line, size_t length) {
    log_to(static_cast<leveldb::Logger*>(logger), "%.*s", static_cast<int>(length), line);
}

// Makes the C interface's options of `from`. An error names what cannot be honoured.
Status translate(const Options& from, void* caller, Held& to) {
    leveldb_options_set_create_if_missing(to.options, from.create_if_missing);
    leveldb_options_set_error_if_exists(to.options, from.error_if_exists);
    leveldb_options_set_paranoid_checks(to.options, from.paranoid_checks);
    leveldb_options_set_write_buffer_size(to.options, from.write_buffer_size);
    leveldb_options_set_max_open_files(to.options, from.max_open_files);
    leveldb_options_set_block_size(to.options, from.block_size);
    leveldb_options_set_block_restart_interval(to.options, from.block_restart_interval);
    leveldb_options_set_max_file_size(to.options, from.max_file_size);
    leveldb_options_set_compression(to.options, from.compression);

    if (from.comparator == nullptr) return Status::InvalidArgument("Options::comparator is null");
    to.comparator = leveldb_comparator_create(const_cast<leveldb::Comparator*>(from.comparator), keep, compare, comparator_name);
    leveldb_options_set_comparator(to.options, to.comparator);
    // LevelDB's own policy does not tell its bits, and Pleach has Bloom filters anyway.
    if (from.filter_policy != nullptr && std::strcmp(from.filter_policy->Name(), "leveldb.BuiltinBloomFilter2") != 0) {
        to.filter_policy = leveldb_filterpolicy_create(const_cast<leveldb::FilterPolicy*>(from.filter_policy), keep,
                                                       create_filter, may_match, policy_name);
        leveldb_options_set_filter_policy(to.options, to.filter_policy);
    }
    if (from.block_cache != nullptr) {
        if (size_t capacity = surroundings::capacity_of_cache(from.block_cache)) {
            to.cache = leveldb_cache_create_lru(capacity);
            leveldb_options_set_cache(to.options, to.cache);
        }
    }
    if (from.info_log != nullptr) {
        to.logger = pleach_leveldb_logger_create(from.info_log, log_line);
        leveldb_options_set_info_log(to.options, to.logger);
    }
    if (leveldb_env_t* memory = surroundings::memory_env(from.env)) {
        leveldb_options_set_env(to.options, memory);
    } else if (from.env != nullptr && from.env != surroundings::default_env(caller) && !surroundings::ignores_env()) {
        return Status::NotSupported(
            "Options::env: Pleach reads and writes files itself, so a custom Env would be passed by. "
            "PLEACH_ENV=ignore in the environment accepts it all the same");
    }
    return Status::OK();
}

class Iterator final : public leveldb::Iterator {
  public:
    Iterator(leveldb_iterator_t* handle, Counters* counters) : handle_(handle), counters_(counters) {}
    ~Iterator() override { leveldb_iter_destroy(handle_); }

    bool Valid() const override { return leveldb_iter_valid(handle_); }
    void SeekToFirst() override {
        counters_->count(&Counters::seeks);
        leveldb_iter_seek_to_first(handle_);
    }
    void SeekToLast() override {
        counters_->count(&Counters::seeks);
        leveldb_iter_seek_to_last(handle_);
    }
    void Seek(const Slice& target) override {
        counters_->count(&Counters::seeks);
        leveldb_iter_seek(handle_, target.data(), target.size());
    }
    void Next() override {
        counters_->count(&Counters::steps);
        leveldb_iter_next(handle_);
    }
    void Prev() override {
        counters_->count(&Counters::steps);
        leveldb_iter_prev(handle_);
    }
    Slice key() const override {
        size_t length = 0;
        const char* bytes = leveldb_iter_key(handle_, &length);
        return Slice(bytes, length);
    }
    Slice value() const override {
        size_t length = 0;
        const char* bytes = leveldb_iter_value(handle_, &length);
        return Slice(bytes, length);
    }
    Status status() const override {
        char* error = nullptr;
        leveldb_iter_get_error(handle_, &error);
        return to_status(error);
    }

  private:
    leveldb_iterator_t* handle_;
    Counters* counters_;
};

void assign(void* value, const char* bytes, size_t length) { static_cast<std::string*>(value)->assign(bytes, length); }

class DB final : public leveldb::DB {
  public:
    DB(leveldb_t* handle, std::unique_ptr<Held> held, Counters* counters)
        : held_(std::move(held)), handle_(handle), counters_(counters) {
        leveldb_writeoptions_set_sync(sync_, 1);
    }

    ~DB() override {
        leveldb_close(handle_);
        leveldb_readoptions_destroy(plain_reads_);
        leveldb_writeoptions_destroy(buffered_);
        leveldb_writeoptions_destroy(sync_);
    }

    Status Put(const leveldb::WriteOptions& options, const Slice& key, const Slice& value) override {
        counters_->count(&Counters::puts);
        char* error = nullptr;
        leveldb_put(handle_, durability(options), key.data(), key.size(), value.data(), value.size(), &error);
        return to_status(error);
    }

    Status Delete(const leveldb::WriteOptions& options, const Slice& key) override {
        counters_->count(&Counters::deletes);
        char* error = nullptr;
        leveldb_delete(handle_, durability(options), key.data(), key.size(), &error);
        return to_status(error);
    }

    // A batch is one string: a sequence number, a count, and the records that LevelDB writes to its log.
    Status Write(const leveldb::WriteOptions& options, leveldb::WriteBatch* updates) override {
        static_assert(sizeof(leveldb::WriteBatch) == sizeof(std::string), "a batch is its representation");
        counters_->count(&Counters::batches);
        if (updates == nullptr) return Status::OK();
        const auto& records = *reinterpret_cast<const std::string*>(updates);
        char* error = nullptr;
        pleach_leveldb_write_records(handle_, durability(options), records.data(), records.size(), &error);
        return to_status(error);
    }

    Status Get(const leveldb::ReadOptions& options, const Slice& key, std::string* value) override {
        counters_->count(&Counters::gets);
        char* error = nullptr;
        uint8_t found;
        if (options.snapshot == nullptr && options.fill_cache) {
            found = pleach_leveldb_get_to(handle_, plain_reads_, key.data(), key.size(), assign, value, &error);
        } else {
            ReadOptions reads(options);
            found = pleach_leveldb_get_to(handle_, reads.handle, key.data(), key.size(), assign, value, &error);
        }
        if (error != nullptr) return to_status(error);
        return found ? Status::OK() : Status::NotFound(Slice());
    }

    leveldb::Iterator* NewIterator(const leveldb::ReadOptions& options) override {
        counters_->count(&Counters::iterators);
        ReadOptions reads(options);
        return new Iterator(leveldb_create_iterator(handle_, reads.handle), counters_);
    }

    const leveldb::Snapshot* GetSnapshot() override {
        return reinterpret_cast<const leveldb::Snapshot*>(leveldb_create_snapshot(handle_));
    }

    void ReleaseSnapshot(const leveldb::Snapshot* snapshot) override {
        leveldb_release_snapshot(handle_, reinterpret_cast<const leveldb_snapshot_t*>(snapshot));
    }

    bool GetProperty(const Slice& property, std::string* value) override {
        value->clear();
        std::unique_ptr<char, Free> text(leveldb_property_value(handle_, property.ToString().c_str()));
        if (text == nullptr) return false;
        value->assign(text.get());
        return true;
    }

    void GetApproximateSizes(const leveldb::Range* ranges, int n, uint64_t* sizes) override {
        for (int i = 0; i < n; i++) {
            const char *start = ranges[i].start.data(), *limit = ranges[i].limit.data();
            const size_t start_length = ranges[i].start.size(), limit_length = ranges[i].limit.size();
            leveldb_approximate_sizes(handle_, 1, &start, &start_length, &limit, &limit_length, &sizes[i]);
        }
    }

    void CompactRange(const Slice* begin, const Slice* end) override {
        leveldb_compact_range(handle_, begin != nullptr ? begin->data() : nullptr, begin != nullptr ? begin->size() : 0,
                              end != nullptr ? end->data() : nullptr, end != nullptr ? end->size() : 0);
    }

  private:
    const leveldb_writeoptions_t* durability(const leveldb::WriteOptions& options) const {
        return options.sync ? sync_ : buffered_;
    }

    std::unique_ptr<Held> held_;
    leveldb_t* handle_;
    Counters* counters_;
    leveldb_readoptions_t* plain_reads_ = leveldb_readoptions_create();
    leveldb_writeoptions_t* buffered_ = leveldb_writeoptions_create();
    leveldb_writeoptions_t* sync_ = leveldb_writeoptions_create();
};

}  // namespace

#define EXPORTED(mangled) __asm__(mangled) __attribute__((visibility("default"), used))

Status open_db(const Options&, const std::string&, leveldb::DB**)
    EXPORTED("_ZN7leveldb2DB4OpenERKNS_7OptionsERK" STRING_MANGLED "PPS0_");
Status repair_db(const std::string&, const Options&) EXPORTED("_ZN7leveldb8RepairDBERK" STRING_MANGLED "RKNS_7OptionsE");
Status destroy_db(const std::string&, const Options&) EXPORTED("_ZN7leveldb9DestroyDBERK" STRING_MANGLED "RKNS_7OptionsE");

Status open_db(const Options& options, const std::string& name, leveldb::DB** db) {
    *db = nullptr;
    auto held = std::make_unique<Held>();
    Status status = translate(options, __builtin_return_address(0), *held);
    if (!status.ok()) return status;
    char* error = nullptr;
    leveldb_t* handle = leveldb_open(held->options, name.c_str(), &error);
    if (error != nullptr) return to_status(error);
    *db = new DB(handle, std::move(held), Counters::of_store(name.c_str()));
    return Status::OK();
}

Status repair_db(const std::string& name, const Options& options) {
    Held held;
    Status status = translate(options, __builtin_return_address(0), held);
    if (!status.ok()) return status;
    char* error = nullptr;
    leveldb_repair_db(held.options, name.c_str(), &error);
    return to_status(error);
}

Status destroy_db(const std::string& name, const Options& options) {
    Held held;
    Status status = translate(options, __builtin_return_address(0), held);
    if (!status.ok()) return status;
    char* error = nullptr;
    leveldb_destroy_db(held.options, name.c_str(), &error);
    return to_status(error);
}
