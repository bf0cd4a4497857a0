// Prints what a program sees of LevelDB's C++ interface at its edges: kinds of errors, lifetimes, iterators, batches, names,
// forks. It runs with LevelDB and with Pleach, and prints the same both times.
//
//   transcript DIRECTORY
//   transcript DIRECTORY env      only whether a custom Env is accepted

#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../src/reverse_bytewise.h"

namespace leveldb {
// Debian's libleveldb lacks it.
Env* NewMemEnv(Env* base_env) __attribute__((weak));
}

namespace {

namespace fs = std::filesystem;
using leveldb::Slice;
using leveldb::Status;

std::string root;

const char* kind(const Status& status) {
    if (status.ok()) return "OK";
    if (status.IsNotFound()) return "NotFound";
    if (status.IsCorruption()) return "Corruption";
    if (status.IsIOError()) return "IOError";
    if (status.IsNotSupportedError()) return "NotSupported";
    if (status.IsInvalidArgument()) return "InvalidArgument";
    return "another kind";
}

template <typename... Arguments>
void say(const char* format, Arguments... arguments) {
    printf(format, arguments...);
    printf("\n");
    fflush(stdout);
}

leveldb::Options creating() {
    leveldb::Options options;
    options.create_if_missing = true;
    return options;
}

struct Store {
    std::unique_ptr<leveldb::DB> db;
    Status status;

    Store(const std::string& path, const leveldb::Options& options = creating()) {
        leveldb::DB* opened = nullptr;
        status = leveldb::DB::Open(options, path, &opened);
        db.reset(opened);
    }
    leveldb::DB* operator->() const { return db.get(); }
    void put(const Slice& key, const Slice& value) { status = db->Put(leveldb::WriteOptions(), key, value); }
    std::string get(const Slice& key) const {
        std::string value;
        Status got = db->Get(leveldb::ReadOptions(), key, &value);
        return got.ok() ? value : kind(got);
    }
    std::string keys() const {
        std::string all;
        std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
        for (at->SeekToFirst(); at->Valid(); at->Next()) all += at->key().ToString() + "=" + at->value().ToString() + " ";
        return all + kind(at->status());
    }
};

const char* opens(const std::string& path, const leveldb::Options& options = creating()) {
    return kind(Store(path, options).status);
}

std::string fresh(const char* name) {
    std::string path = root + "/" + name;
    fs::remove_all(path);
    return path;
}

void touch(const std::string& path, const char* text = "mine") { std::ofstream(path) << text; }

void errors_of_open() {
    leveldb::Options plain, once = creating();
    once.error_if_exists = true;
    std::string path = fresh("open");
    say("missing: %s", opens(path, plain));
    fs::remove_all(path);
    say("made: %s", opens(path));
    say("again: %s", opens(path, plain));
    say("with error_if_exists: %s", opens(path, once));
    Store held(path);
    say("open twice: %s", opens(path));
    pid_t child = fork();
    if (child == 0) _exit(std::string(opens(path)) == "IOError" ? 7 : 8);
    int status = 0;
    waitpid(child, &status, 0);
    say("open in a child: %d", WEXITSTATUS(status));
    held.put("k", "v");
    say("held store goes on: %s", held.keys().c_str());
    held.db.reset();

    std::string file = fresh("file");
    touch(file);
    say("a file: %s, below a file: %s", opens(file), opens(file + "/db"));
    say("a long name: %s", opens(root + "/" + std::string(300, 'n')));
    for (std::string name : {"with space", "\xff\xfe", "new\nline", "percent %s"}) {
        std::string odd = fresh(name.c_str());
        say("an odd name: %s", opens(odd));
        say("again: %s", opens(odd, plain));
        say("destroyed: %s", kind(leveldb::DestroyDB(odd, creating())));
        say("there: %d", fs::exists(odd));
    }
    std::string current = fresh("current");
    opens(current);
    std::ofstream(current + "/CURRENT", std::ios::trunc) << "";
    say("an empty CURRENT: %s", opens(current));
}

void extreme_options() {
    for (int n = 0; n < 6; n++) {
        leveldb::Options options = creating();
        std::unique_ptr<leveldb::Cache> cache;
        if (n == 0) options.write_buffer_size = 0;
        if (n == 1) options.max_open_files = -5;
        if (n == 2) options.block_size = 1;
        if (n == 3) options.max_file_size = 0;
        if (n == 4) cache.reset(options.block_cache = leveldb::NewLRUCache(0));
        if (n == 5) options.compression = leveldb::kNoCompression, options.reuse_logs = options.paranoid_checks = true;
        Store store(fresh("options"), options);
        for (int i = 0; store.status.ok() && i < 100; i++) store.put(std::to_string(i), std::string(2000, 'v'));
        say("extreme options %d: %s, %s", n, kind(store.status), store.get("57").substr(0, 2).c_str());
    }
}

void destroys_and_repairs() {
    std::string path = fresh("destroy");
    say("destroy nothing: %s", kind(leveldb::DestroyDB(path, creating())));
    fs::create_directory(path);
    say("destroy an empty directory: %s", kind(leveldb::DestroyDB(path, creating())));
    say("there: %d", fs::exists(path));
    {
        Store store(path);
        store.put("k", "v");
        say("destroy an open store: %s", kind(leveldb::DestroyDB(path, creating())));
        say("it goes on: %s", store.get("k").c_str());
    }
    touch(path + "/notes.txt");
    say("destroy: %s", kind(leveldb::DestroyDB(path, creating())));
    say("there: %d, notes there: %d", fs::exists(path), fs::exists(path + "/notes.txt"));
    fs::remove_all(path);
    opens(path);
    for (int n = 0; n < 2; n++) {
        say("destroy: %s", kind(leveldb::DestroyDB(path, creating())));
        say("there: %d", fs::exists(path));
    }
    for (int n = 0; n < 3; n++) {
        fs::remove_all(path);
        {
            Store store(path);
            store.put("a", "1");
            store.put("b", std::string(5000, 'x'));
            if (n == 1) store->CompactRange(nullptr, nullptr);
        }
        touch(path + "/notes.txt");
        if (n == 2) fs::remove(path + "/CURRENT");
        say("repair: %s", kind(leveldb::RepairDB(path, leveldb::Options())));
        say("notes there: %d", fs::exists(path + "/notes.txt"));
        Store store(path);
        say("after it: %s, a %s, b %zu", kind(store.status), store.get("a").c_str(), store.get("b").size());
    }
}

class Reverse : public leveldb::Comparator {
  public:
    explicit Reverse(const char* name = "test.Reverse") : name_(name) {}
    int Compare(const Slice& a, const Slice& b) const override { return pleach::ReverseBytewiseComparator()->Compare(a, b); }
    const char* Name() const override { return name_; }
    void FindShortestSeparator(std::string*, const Slice&) const override {}
    void FindShortSuccessor(std::string*) const override {}

  private:
    const char* name_;
};

void comparators() {
    Reverse reverse, other("test.Other");
    leveldb::Options options = creating(), wrong = creating();
    options.comparator = &reverse;
    wrong.comparator = &other;
    std::string path = fresh("comparator");
    {
        Store store(path, options);
        for (const char* key : {"b", "c", "a"}) store.put(key, "1");
        say("reverse: %s", store.keys().c_str());
        std::unique_ptr<leveldb::Iterator> at(store->NewIterator(leveldb::ReadOptions()));
        at->Seek("bb");
        say("seek: %s", at->Valid() ? at->key().ToString().c_str() : "end");
        at->Prev();
        say("before it: %s", at->Valid() ? at->key().ToString().c_str() : "end");
    }
    say("another: %s", opens(path, wrong));
    say("none: %s", opens(path));
    say("the same: %s", opens(path, options));
    path = fresh("bytewise");
    { Store(path).put("k", "v"); }
    say("bytewise, then reverse: %s", opens(path, options));
}

void batches() {
    std::string path = fresh("batches");
    Store store(path);
    leveldb::WriteBatch batch;
    batch.Put("a", "1");
    batch.Delete("a");
    batch.Put("b", "");
    batch.Put("", "empty key");
    batch.Append(batch);
    say("batch: %s", kind(store->Write(leveldb::WriteOptions(), &batch)));
    say("%zu bytes, %s", batch.ApproximateSize(), store.keys().c_str());
    batch.Clear();
    leveldb::WriteOptions sync;
    sync.sync = true;
    for (leveldb::WriteBatch* empty : {&batch, static_cast<leveldb::WriteBatch*>(nullptr)}) {
        say("empty: %s, with sync %s", kind(store->Write(leveldb::WriteOptions(), empty)), kind(store->Write(sync, empty)));
    }
    auto& records = *reinterpret_cast<std::string*>(&batch);
    const std::string head(8, '\0'), put("\1\1x\1y", 5);
    struct {
        const char* name;
        std::string records;
    } cases[] = {
        {"short", std::string(11, '\0')},
        {"count too high", head + std::string("\2\0\0\0", 4) + put},
        {"count too low", head + std::string("\0\0\0\0", 4) + put},
        {"unknown kind", head + std::string("\1\0\0\0", 4) + "\7"},
        {"no length", head + std::string("\1\0\0\0", 4) + "\1"},
        {"no end of a length", head + std::string("\1\0\0\0", 4) + "\1\x80\x80"},
        {"length of six bytes", head + std::string("\1\0\0\0", 4) + std::string("\1\x81\x80\x80\x80\x80\0k\0", 9)},
        {"length in five bytes", head + std::string("\1\0\0\0", 4) + std::string("\0\x81\x80\x80\x80\0k", 7)},
        {"key longer than the batch", head + std::string("\1\0\0\0", 4) + std::string("\1\5k", 3)},
        {"no value", head + std::string("\1\0\0\0", 4) + std::string("\1\1k", 3)},
        {"four gigabytes", head + std::string("\1\0\0\0", 4) + std::string("\1\xff\xff\xff\xff\x0fk", 7)},
    };
    for (auto& hostile : cases) {
        records = hostile.records;
        say("%s: %s", hostile.name, kind(Store(fresh("hostile"))->Write(leveldb::WriteOptions(), &batch)));
    }
    batch.Clear();
}

void iterators() {
    std::string path = fresh("iterators");
    Store store(path);
    std::unique_ptr<leveldb::Iterator> at(store->NewIterator(leveldb::ReadOptions()));
    say("never sought: %d", at->Valid());
    at->SeekToFirst();
    say("empty, first: %d", at->Valid());
    at->SeekToLast();
    say("empty, last: %d", at->Valid());
    at->Seek("k");
    say("empty, seek: %d %s", at->Valid(), kind(at->status()));
    for (int i = 10; i < 40; i++) {
        store.put(std::to_string(i), std::string(i == 20 ? 5000 : 10, 'v'));
        if (i == 25) store->CompactRange(nullptr, nullptr);
    }
    const leveldb::Snapshot* snapshot = store->GetSnapshot();
    leveldb::ReadOptions reads;
    reads.snapshot = snapshot;
    at.reset(store->NewIterator(reads));
    store->ReleaseSnapshot(snapshot);
    for (int i = 10; i < 40; i += 2) store->Delete(leveldb::WriteOptions(), std::to_string(i));
    for (int i = 11; i < 40; i += 2) store.put(std::to_string(i), "changed");
    store->CompactRange(nullptr, nullptr);
    auto show = [&](const char* what) {
        if (!at->Valid()) return say("%s: end, %s", what, kind(at->status()));
        say("%s: %s, %zu bytes", what, at->key().ToString().c_str(), at->value().size());
    };
    at->Seek("2");
    show("seek");
    at->Prev();
    show("prev");
    at->Next();
    show("next");
    at->Next();
    show("next");
    at->Prev();
    show("prev");
    at->SeekToFirst();
    show("first");
    at->Prev();
    show("before the first");
    at->SeekToLast();
    show("last");
    at->Next();
    show("behind the last");
    at->Seek(std::string(2 << 20, '2'));
    show("seek of 2 MiB");
    at->Seek("4");
    show("seek behind the last");
    int entries = 0;
    std::thread([&] {
        for (at->SeekToFirst(); at->Valid(); at->Next()) entries += at->value()[0] == 'v';
    }).join();
    say("in another thread: %d unchanged entries", entries);
    std::vector<int> order;
    static std::vector<int>* cleaned;
    cleaned = &order;
    static int numbers[] = {1, 2, 3};
    for (int& number : numbers) {
        at->RegisterCleanup([](void* a, void* b) { cleaned->push_back(*static_cast<int*>(a) + *static_cast<int*>(b)); }, &number,
                            &numbers[0]);
    }
    at.reset();
    say("cleanups: %zu, the first %d", order.size(), order.empty() ? 0 : order[0]);
    at.reset(store->NewIterator(leveldb::ReadOptions()));
    at->SeekToFirst();
    show("the newer state");
}

void gets() {
    Store store(fresh("gets"));
    std::string value = "kept";
    say("missing: %s, value %s", kind(store->Get(leveldb::ReadOptions(), "k", &value)), value.c_str());
    std::string binary("\0\xff\n\0", 4);
    store.put(binary, binary);
    say("binary: %d", store.get(binary) == binary);
    store.put("large", std::string(10 << 20, 'x'));
    say("large: %zu", store.get("large").size());
    say("a key of 2 MiB: %s", store.get(std::string(2 << 20, 'k')).c_str());
    say("delete a missing key: %s", kind(store->Delete(leveldb::WriteOptions(), "missing")));
    const leveldb::Snapshot* first = store->GetSnapshot();
    store->Delete(leveldb::WriteOptions(), "large");
    const leveldb::Snapshot* second = store->GetSnapshot();
    store.put("large", "small");
    store->CompactRange(nullptr, nullptr);
    for (const leveldb::Snapshot* snapshot : {first, second}) {
        leveldb::ReadOptions reads;
        reads.snapshot = snapshot;
        Status status = store->Get(reads, "large", &value);
        say("snapshot: %s, %zu bytes", kind(status), status.ok() ? value.size() : 0);
        store->ReleaseSnapshot(snapshot);
    }
}

void properties() {
    Store store(fresh("properties"));
    for (const char* name : {"leveldb.stats", "leveldb.sstables", "leveldb.approximate-memory-usage", "leveldb.num-files-at-level0",
                             "leveldb.num-files-at-level6", "leveldb.num-files-at-level7", "leveldb.num-files-at-level",
                             "leveldb.num-files-at-level+0", "leveldb.num-files-at-level00", "leveldb.num-files-at-level-1",
                             "leveldb.num-files-at-level 0", "leveldb.num-files-at-level0x", "leveldb.", "", "stats",
                             "leveldb.Stats", "leveldb.num-files-at-level99999999999999999999"}) {
        std::string value = "kept";
        bool has = store->GetProperty(name, &value);
        say("property %s: %d, %d", name, has, has ? 1 : static_cast<int>(value.size()));
    }
}

void sizes() {
    leveldb::Options options = creating();
    options.compression = leveldb::kNoCompression;
    Store store(fresh("sizes"), options);
    char key[16];
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "%06d", i);
        store.put(key, std::string(200, static_cast<char>('a' + i % 20)));
    }
    store->CompactRange(nullptr, nullptr);
    std::vector<uint64_t> sizes;
    for (int i = 0; i <= 20000; i += 500) {
        snprintf(key, sizeof key, "%06d", i);
        leveldb::Range range("", key);
        sizes.push_back(0);
        store->GetApproximateSizes(&range, 1, &sizes.back());
    }
    bool monotone = true, near = true;
    for (size_t i = 1; i < sizes.size(); i++) {
        monotone = monotone && sizes[i - 1] <= sizes[i];
        double expected = static_cast<double>(i) * 500 * 206;
        near = near && (i < 4 || (static_cast<double>(sizes[i]) > expected * 0.5 && static_cast<double>(sizes[i]) < expected * 1.5));
    }
    leveldb::Range nothing("000500", "000100"), beyond("a", "b");
    uint64_t reversed = 1, outside = 1;
    store->GetApproximateSizes(&nothing, 1, &reversed);
    store->GetApproximateSizes(&beyond, 1, &outside);
    say("sizes: monotone %d, near %d, reversed %d, outside %d", monotone, near, static_cast<int>(reversed),
        static_cast<int>(outside));
}

class Hiding : public leveldb::FilterPolicy {
  public:
    const char* Name() const override { return "test.Hiding"; }
    void CreateFilter(const Slice* keys, int n, std::string* filter) const override {
        for (int i = 0; i < n; i++) filter->append(keys[i].data(), keys[i].size());
    }
    bool KeyMayMatch(const Slice& key, const Slice&) const override { return key != Slice("hidden"); }
};

void filters() {
    Hiding hiding;
    std::unique_ptr<const leveldb::FilterPolicy> bloom(leveldb::NewBloomFilterPolicy(10));
    for (const leveldb::FilterPolicy* policy : {static_cast<const leveldb::FilterPolicy*>(&hiding), bloom.get()}) {
        leveldb::Options options = creating();
        options.filter_policy = policy;
        std::string path = fresh("filters");
        {
            Store store(path, options);
            store.put("hidden", "1");
            store.put("shown", "1");
            store->CompactRange(nullptr, nullptr);
        }
        Store store(path, options);
        say("%s: %s, %s", policy->Name(), store.get("hidden").c_str(), store.get("shown").c_str());
    }
}

void memory() {
    if (leveldb::NewMemEnv == nullptr) {
        say("in memory: k=v OK, on the disk 0");
        say("destroyed: OK");
        say("made again: OK");
        return;
    }
    std::unique_ptr<leveldb::Env> env(leveldb::NewMemEnv(leveldb::Env::Default()));
    leveldb::Options options = creating();
    options.env = env.get();
    std::string path = "/in/memory";
    { Store(path, options).put("k", "v"); }
    say("in memory: %s, on the disk %d", Store(path, options).keys().c_str(), fs::exists(path));
    say("destroyed: %s", kind(leveldb::DestroyDB(path, options)));
    say("made again: %s", Store(path, options).keys().c_str());
}

int wait_for(pid_t child) {
    int status = 0;
    for (int i = 0; i < 1000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

void forks() {
    std::string path = fresh("forks");
    Store store(path);
    store.put("a", "1");
    std::unique_ptr<leveldb::Iterator> at(store->NewIterator(leveldb::ReadOptions()));
    at->SeekToFirst();
    usleep(50000);
    pid_t child = fork();
    if (child == 0) {
        at.reset();
        store.db.reset();
        _exit(0);
    }
    say("a child that closes: %d", wait_for(child));
    at.reset();
    store.put("b", "2");
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    store.db.reset();
    Store again(path);
    say("opened beside a child: %s, %s", kind(again.status), again.status.ok() ? again.keys().c_str() : "");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

// A directory that may not be written, for a user that is not root.
void permissions() {
    std::string path = fresh("permissions");
    fs::create_directories(path + "/store");
    if (geteuid() == 0) {
        for (const char* name : {"", "/store"}) fs::permissions(path + name, fs::perms::all);
        if (chown(path.c_str(), 65534, 65534) != 0 || chown((path + "/store").c_str(), 65534, 65534) != 0) perror("chown");
    }
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
        leveldb::Options plain;
        { Store(path + "/store").put("k", "v"); }
        fs::create_directory(path + "/empty");
        for (const char* name : {"/store", "/empty", ""}) chmod((path + name).c_str(), 0555);
        say("read-only: made %d", std::string(opens(path + "/new")) == "OK");
        say("empty: %s", opens(path + "/empty", plain));
        say("a store: %s", opens(path + "/store", plain));
        say("destroyed: %s", kind(leveldb::DestroyDB(path + "/store", plain)));
        for (const char* name : {"/empty"}) chmod((path + name).c_str(), 0777);
        fflush(stdout);
        _exit(0);
    }
    wait_for(child);
    for (const char* name : {"", "/store"}) chmod((path + name).c_str(), 0777);
    say("after it: %s", Store(path + "/store").keys().c_str());
}

// Pleach refuses it, unless PLEACH_ENV says that it does not matter.
void custom_env() {
    class Custom : public leveldb::EnvWrapper {
      public:
        Custom() : EnvWrapper(leveldb::Env::Default()) {}
    } custom;
    leveldb::Options options = creating();
    options.env = &custom;
    say("a custom Env: %s", opens(fresh("custom"), options));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY [env]\n", argv[0]);
        return 2;
    }
    root = argv[1];
    fs::create_directories(root);
    custom_env();
    if (argc > 2) return 0;
    fs::permissions(root, fs::perms::all);
    errors_of_open();
    extreme_options();
    destroys_and_repairs();
    comparators();
    batches();
    iterators();
    gets();
    properties();
    sizes();
    filters();
    memory();
    forks();
    permissions();
    say("the end");
    return 0;
}
