// The reverse order of bytes, for Options::comparator. Pleach knows it by its name, which is RocksDB's, and keeps no keys of
// such a store in memory. It works with LevelDB too.

#ifndef PLEACH_REVERSE_BYTEWISE_H_
#define PLEACH_REVERSE_BYTEWISE_H_

#include <leveldb/comparator.h>
#include <leveldb/slice.h>

#include <string>

namespace pleach {

// Never destroyed, as leveldb::BytewiseComparator().
inline const leveldb::Comparator* ReverseBytewiseComparator() {
    class Comparator final : public leveldb::Comparator {
      public:
        const char* Name() const override { return "rocksdb.ReverseBytewiseComparator"; }
        int Compare(const leveldb::Slice& a, const leveldb::Slice& b) const override { return b.compare(a); }
        void FindShortestSeparator(std::string*, const leveldb::Slice&) const override {}
        void FindShortSuccessor(std::string*) const override {}
    };
    static const leveldb::Comparator* comparator = new Comparator;
    return comparator;
}

}  // namespace pleach

#endif
