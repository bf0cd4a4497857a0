// Copies a LevelDB store into a new store of Pleach, and compares both afterwards.

#include <leveldb/c.h>
#include <leveldb/db.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace {

constexpr const char* HELP =
    "convert OLD NEW: copies the LevelDB store in the directory OLD into a new Pleach store in the directory NEW\n"
    "\n"
    "OLD is opened by libleveldb, so no other process may have it open. That recovers its log and may merge its files, but\n"
    "does not change its entries. NEW must not exist; directories above it are created. The copy is written beside it, in the\n"
    "directory NEW.partial, is compared with OLD entry by entry, and gets its name at the end. A NEW.partial that an earlier\n"
    "run has left, with its file MADE-BY-CONVERT, is removed. Only stores in LevelDB's own key order can be read without the\n"
    "program that made them.\n"
    "\n"
    "exit codes: 0 copied and compared; 1 failed, nothing is at NEW; 2 wrong arguments; 130 interrupted\n";

volatile sig_atomic_t interrupted = 0;

void interrupt(int) { interrupted = 1; }

struct Failure {
    std::string message;
    int exit_code = 1;
};

// Bytes of LevelDB's tables and logs in a directory: what the progress is measured by.
uint64_t bytes_of_store(const std::string& directory) {
    uint64_t bytes = 0;
    std::error_code removed;  // LevelDB may remove files meanwhile
    for (auto& entry : std::filesystem::directory_iterator(directory)) {
        std::string extension = entry.path().extension();
        if (extension != ".ldb" && extension != ".sst" && extension != ".log") continue;
        uint64_t length = entry.file_size(removed);
        if (!removed) bytes += length;
    }
    return bytes;
}

// One line on a terminal, nothing elsewhere. The share is that of the keys' range, which LevelDB knows in bytes of its files.
class Progress {
  public:
    Progress(const char* what, leveldb::DB* old, uint64_t total) : what_(what), old_(old), total_(total) {}

    void at(const leveldb::Slice& key, uint64_t entries, uint64_t bytes) {
        if (!isatty(STDERR_FILENO) || entries % 1024 != 0) return;
        auto now = std::chrono::steady_clock::now();
        if (now - shown_ < std::chrono::milliseconds(100)) return;
        shown_ = now;
        leveldb::Range before(leveldb::Slice(), key);
        uint64_t done = 0;
        old_->GetApproximateSizes(&before, 1, &done);
        int percent = total_ == 0 ? 0 : static_cast<int>(std::min<uint64_t>(99, done * 100 / total_));
        char bar[31];
        std::memset(bar, ' ', 30);
        std::memset(bar, '#', static_cast<size_t>(percent * 30 / 100));
        bar[30] = '\0';
        double seconds = std::chrono::duration<double>(now - started_).count();
        fprintf(stderr, "\r%s [%s] %2d %%  %" PRIu64 " entries, %.0f MB/s ", what_, bar, percent, entries,
                static_cast<double>(bytes) / 1e6 / seconds);
        fflush(stderr);
    }

    void end() {
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%79s\r", "");
    }

  private:
    const char* what_;
    leveldb::DB* old_;
    uint64_t total_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), shown_{};
};

void stop_if_interrupted() {
    if (interrupted) throw Failure{"interrupted", 130};
}

void check(const leveldb::Status& status, const std::string& what) {
    if (!status.ok()) throw Failure{what + ": " + status.ToString()};
}

void check(char* error, const std::string& what) {
    if (error == nullptr) return;
    std::string message = what + ": " + error;
    leveldb_free(error);
    throw Failure{message};
}

struct NewStore {
    std::string directory;
    leveldb_options_t* options = leveldb_options_create();
    leveldb_cache_t* cache = leveldb_cache_create_lru(256 << 20);
    leveldb_readoptions_t* read = leveldb_readoptions_create();
    leveldb_writeoptions_t* write = leveldb_writeoptions_create();
    leveldb_t* db = nullptr;

    explicit NewStore(std::string path) : directory(std::move(path)) {
        leveldb_options_set_create_if_missing(options, 1);
        leveldb_options_set_error_if_exists(options, 1);
        leveldb_options_set_write_buffer_size(options, 64 << 20);
        leveldb_options_set_cache(options, cache);
        leveldb_readoptions_set_fill_cache(read, 0);
        char* error = nullptr;
        db = leveldb_open(options, directory.c_str(), &error);
        check(error, directory);
    }

    ~NewStore() {
        if (db != nullptr) leveldb_close(db);
        leveldb_readoptions_destroy(read);
        leveldb_writeoptions_destroy(write);
        leveldb_options_destroy(options);
        leveldb_cache_destroy(cache);
    }
    NewStore(const NewStore&) = delete;

    void commit(leveldb_writebatch_t* batch, bool sync) {
        leveldb_writeoptions_set_sync(write, sync);
        char* error = nullptr;
        leveldb_write(db, write, batch, &error);
        leveldb_writebatch_clear(batch);
        check(error, directory);
    }
};

struct Totals {
    uint64_t entries = 0, bytes = 0;
};

Totals copy(leveldb::DB* old, NewStore& store, uint64_t total) {
    leveldb::ReadOptions reads;
    reads.fill_cache = false;
    reads.verify_checksums = true;
    std::unique_ptr<leveldb::Iterator> entry(old->NewIterator(reads));
    leveldb_writebatch_t* batch = leveldb_writebatch_create();
    std::unique_ptr<leveldb_writebatch_t, void (*)(leveldb_writebatch_t*)> owner(batch, leveldb_writebatch_destroy);
    Progress progress("copy   ", old, total);
    Totals totals;
    size_t in_batch = 0;
    for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
        leveldb::Slice key = entry->key(), value = entry->value();
        leveldb_writebatch_put(batch, key.data(), key.size(), value.data(), value.size());
        in_batch += key.size() + value.size();
        totals.entries++;
        totals.bytes += key.size() + value.size();
        progress.at(key, totals.entries, totals.bytes);
        if (in_batch >= 256 << 10) {
            stop_if_interrupted();
            store.commit(batch, false);
            in_batch = 0;
        }
    }
    progress.end();
    check(entry->status(), "reading the old store");
    store.commit(batch, true);
    return totals;
}

void compare(leveldb::DB* old, NewStore& store, uint64_t total) {
    leveldb::ReadOptions reads;
    reads.fill_cache = false;
    std::unique_ptr<leveldb::Iterator> entry(old->NewIterator(reads));
    std::unique_ptr<leveldb_iterator_t, void (*)(leveldb_iterator_t*)> copied(
        leveldb_create_iterator(store.db, store.read), leveldb_iter_destroy);
    Progress progress("compare", old, total);
    uint64_t entries = 0, bytes = 0;
    leveldb_iter_seek_to_first(copied.get());
    for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
        char* error = nullptr;
        leveldb_iter_get_error(copied.get(), &error);
        check(error, store.directory);
        if (!leveldb_iter_valid(copied.get())) throw Failure{"the copy lacks entries from number " + std::to_string(entries)};
        size_t key_length = 0, value_length = 0;
        const char* key = leveldb_iter_key(copied.get(), &key_length);
        const char* value = leveldb_iter_value(copied.get(), &value_length);
        if (entry->key() != leveldb::Slice(key, key_length) || entry->value() != leveldb::Slice(value, value_length)) {
            throw Failure{"the copy differs at entry " + std::to_string(entries)};
        }
        entries++;
        bytes += key_length + value_length;
        progress.at(entry->key(), entries, bytes);
        if (entries % 1024 == 0) stop_if_interrupted();
        leveldb_iter_next(copied.get());
    }
    progress.end();
    check(entry->status(), "reading the old store");
    if (leveldb_iter_valid(copied.get())) throw Failure{"the copy has more entries than the old store"};
}

// Whether `inner` is `outer`, or lies in it.
bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer) {
    auto rest = std::filesystem::weakly_canonical(inner).lexically_relative(std::filesystem::weakly_canonical(outer));
    return !rest.empty() && *rest.begin() != "..";
}

// The directory in which the copy is made. Its file MADE-BY-CONVERT tells a later run that it may be removed.
struct Partial {
    std::string directory, mark, store;

    explicit Partial(const std::string& to)
        : directory(to + ".partial"), mark(directory + "/MADE-BY-CONVERT"), store(directory + "/store") {}

    void create() const {
        std::filesystem::path above = std::filesystem::path(directory).parent_path();
        if (!above.empty()) std::filesystem::create_directories(above);
        if (!std::filesystem::create_directory(directory)) throw Failure{directory + ": somebody else has just made it"};
        if (!std::ofstream(mark).flush()) throw Failure{mark + ": cannot be written"};
    }

    // Removes what a run has left, and nothing else: whatever is not Pleach's stays, and so does a store that is open.
    void remove() const {
        if (!std::filesystem::exists(std::filesystem::symlink_status(directory))) return;
        if (!std::filesystem::exists(mark)) {
            throw Failure{directory + ": exists already, without the file MADE-BY-CONVERT; move it away, or name another path"};
        }
        std::unique_ptr<leveldb_options_t, void (*)(leveldb_options_t*)> options(leveldb_options_create(),
                                                                                leveldb_options_destroy);
        char* error = nullptr;
        leveldb_destroy_db(options.get(), store.c_str(), &error);
        check(error, store);
        remove_directory();
    }

    // Removes the directory, whose store has left it.
    void remove_directory() const {
        for (auto& entry : std::filesystem::directory_iterator(directory)) {
            if (entry.path() != mark) throw Failure{directory + ": holds other files; move it away, or name another path"};
        }
        std::filesystem::remove(mark);
        std::filesystem::remove(directory);
    }
};

void sync_directory(const std::filesystem::path& directory) {
    int descriptor = open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 || fsync(descriptor) != 0) {
        int code = errno;
        if (descriptor >= 0) close(descriptor);
        throw Failure{directory.string() + ": " + std::strerror(code)};
    }
    close(descriptor);
}

bool is_pleach(const std::string& directory) {
    std::ifstream current(directory + "/CURRENT", std::ios::binary);
    char start[7] = {};
    return current.read(start, sizeof start) && std::memcmp(start, "pleach ", sizeof start) == 0;
}

void convert(const std::string& from, const std::string& to) {
    if (to.empty()) throw Failure{"the path of the new store is empty"};
    if (!std::filesystem::exists(from + "/CURRENT")) throw Failure{from + ": no LevelDB store is there (no file CURRENT)"};
    if (is_pleach(from)) throw Failure{from + ": is a store of Pleach's already"};
    if (std::filesystem::exists(std::filesystem::symlink_status(to))) {
        throw Failure{to + ": exists already; name a path that does not"};
    }
    const Partial partial(to);
    if (lies_in(partial.directory, from) || lies_in(from, partial.directory)) {
        throw Failure{partial.directory + ", where the copy is written, and " + from + " must be apart; name another path"};
    }

    leveldb::Options options;
    options.paranoid_checks = true;
    leveldb::DB* opened = nullptr;
    leveldb::Status status = leveldb::DB::Open(options, from, &opened);
    if (status.IsInvalidArgument() && status.ToString().find("omparator") != std::string::npos) {
        throw Failure{from + ": " + status.ToString() +
                      ". Such a store can be read only by its own program: copy it there, from one library to the other"};
    }
    if (status.IsNotSupportedError()) {  // LevelDB's own open never returns this
        throw Failure{from + ": libleveldb is needed to read it, but LD_PRELOAD has Pleach's library in its place; unset it"};
    }
    check(status, from);
    std::unique_ptr<leveldb::DB> old(opened);
    partial.remove();
    uint64_t total = bytes_of_store(from);

    Totals totals;
    partial.create();
    try {
        {
            NewStore store(partial.store);
            totals = copy(old.get(), store, total);
            compare(old.get(), store, total);
        }
        std::filesystem::rename(partial.store, to);
    } catch (...) {
        try {
            partial.remove();
        } catch (const std::exception&) {  // the first failure is reported
        } catch (const Failure&) {
        }
        throw;
    }
    partial.remove_directory();
    sync_directory(std::filesystem::path(to).parent_path());
    printf("%" PRIu64 " entries, %" PRIu64 " bytes of keys and values: copied to %s and compared\n", totals.entries,
           totals.bytes, to.c_str());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
        fputs(HELP, stdout);
        return 0;
    }
    if (argc != 3 || argv[1][0] == '-' || argv[2][0] == '-') {
        fputs(HELP, stderr);
        return 2;
    }
    struct sigaction action {};
    action.sa_handler = interrupt;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    std::string to = argv[2];
    while (to.size() > 1 && to.back() == '/') to.pop_back();
    try {
        convert(argv[1], to);
        return 0;
    } catch (const Failure& failure) {
        fprintf(stderr, "convert: %s\n", failure.message.c_str());
        return failure.exit_code;
    } catch (const std::exception& error) {
        fprintf(stderr, "convert: %s\n", error.what());
        return 1;
    }
}
