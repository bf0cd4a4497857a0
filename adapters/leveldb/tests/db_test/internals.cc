// What LevelDB's db_test.cc asks of LevelDB's implementation, by functions of the public interface: so its tests can run on a DB of
// Pleach's. The tests cast a DB to a DBImpl and call these; none of them reads a member of DBImpl.

#include "db/db_impl.h"
#include "leveldb/iterator.h"

namespace leveldb {

namespace {

// Not inlined: the vtables are those of the real object, and the compiler must not assume a DBImpl.
__attribute__((noinline)) Status remove(DB* db, const Slice& key) { return db->Delete(WriteOptions(), key); }
__attribute__((noinline)) void compact(DB* db, const Slice* begin, const Slice* end) { db->CompactRange(begin, end); }

}  // namespace

// A compaction of a key that is in memory writes all that is in memory to files, and merges hardly anything. The key is deleted, not
// put, and no test uses it, so it changes no answer.
Status DBImpl::TEST_CompactMemTable() {
    const Slice key("\xff\xff flush");
    Status status = remove(this, key);
    compact(this, &key, &key);
    return status;
}

// Pleach has no levels: everything is merged.
void DBImpl::TEST_CompactRange(int, const Slice*, const Slice*) { compact(this, nullptr, nullptr); }

// Tests that need these do not apply, and fail.
Iterator* DBImpl::TEST_NewInternalIterator() { return NewErrorIterator(Status::NotSupported("internal entries")); }
int64_t DBImpl::TEST_MaxNextLevelOverlappingBytes() { return INT64_MAX; }

}  // namespace leveldb
