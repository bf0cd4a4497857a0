// A store in the reverse order of bytes, by LevelDB's C++ interface: reverse DIRECTORY
//
// It runs with LevelDB and with Pleach. The last line is "reverse order: PASS".

#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../src/reverse_bytewise.h"

namespace {

void check(bool holds, const char* what) {
    if (holds) return;
    printf("reverse order: FAILED: %s\n", what);
    exit(1);
}

void check(const leveldb::Status& status, const char* what) {
    if (!status.ok()) printf("%s\n", status.ToString().c_str());
    check(status.ok(), what);
}

class OtherOrder final : public leveldb::Comparator {
  public:
    const char* Name() const override { return pleach::ReverseBytewiseComparator()->Name(); }
    int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override { return a.compare(b); }
    void FindShortestSeparator(std::string*, const leveldb::Slice&) const override {}
    void FindShortSuccessor(std::string*) const override {}
};

std::vector<std::string> keys(leveldb::DB* db, bool forwards) {
    std::unique_ptr<leveldb::Iterator> iterator(db->NewIterator(leveldb::ReadOptions()));
    std::vector<std::string> keys;
    forwards ? iterator->SeekToFirst() : iterator->SeekToLast();
    while (iterator->Valid()) {
        keys.push_back(iterator->key().ToString());
        forwards ? iterator->Next() : iterator->Prev();
    }
    check(iterator->status(), "iterator");
    return keys;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    leveldb::Options options;
    options.create_if_missing = true;
    options.comparator = pleach::ReverseBytewiseComparator();
    leveldb::DB* opened = nullptr;
    check(leveldb::DB::Open(options, argv[1], &opened), "open");
    std::unique_ptr<leveldb::DB> db(opened);

    std::vector<std::string> expected = {"", std::string(1, '\0'), std::string("\0\0a", 3), "a", std::string("a\0", 2), "b", "\xff"};
    leveldb::WriteBatch batch;
    for (auto& key : expected) batch.Put(key, key + "'s");
    batch.Put("gone", "");
    check(db->Write(leveldb::WriteOptions(), &batch), "write");
    const leveldb::Snapshot* snapshot = db->GetSnapshot();
    check(db->Delete(leveldb::WriteOptions(), "gone"), "delete");
    check(keys(db.get(), false) == expected, "backwards");
    std::string value;
    leveldb::ReadOptions past;
    past.snapshot = snapshot;
    check(db->Get(past, "gone", &value), "get of a snapshot");
    db->ReleaseSnapshot(snapshot);

    db.reset();
    check(leveldb::DB::Open(options, argv[1], &opened), "open again");
    db.reset(opened);
    for (auto& key : expected) {
        check(db->Get(leveldb::ReadOptions(), key, &value), "get");
        check(value == key + "'s", "value");
    }
    db->CompactRange(nullptr, nullptr);
    std::reverse(expected.begin(), expected.end());
    check(keys(db.get(), true) == expected, "forwards");
    std::unique_ptr<leveldb::Iterator> iterator(db->NewIterator(leveldb::ReadOptions()));
    iterator->Seek("aa");
    check(iterator->Valid() && iterator->key() == leveldb::Slice("a\0", 2), "seek");
    iterator.reset();
    db.reset();

    // The name does not match the order. LevelDB does not look at that.
    OtherOrder other;
    options.comparator = &other;
    leveldb::Status status = leveldb::DB::Open(options, argv[1], &opened);
    if (status.ok()) delete opened;
    printf("another order by this name: %s\n", status.ToString().c_str());
    check(status.ok() || status.IsInvalidArgument(), "another order by this name");
    options.comparator = leveldb::BytewiseComparator();
    check(!leveldb::DB::Open(options, argv[1], &opened).ok(), "the order of bytes is refused");
    check(leveldb::DestroyDB(argv[1], options), "destroy");
    printf("reverse order: PASS\n");
    return 0;
}
