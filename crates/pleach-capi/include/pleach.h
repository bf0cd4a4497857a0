// Pleach: an embeddable, ordered key-value store. This is its interface for C. docs/capi.md has an example.
//
// Written by `cargo xtask header` from the comments in crates/pleach-capi/src.
//
// Rules
// - A function that can fail returns a `pleach_error *`: null if it succeeded, otherwise an error that the caller frees with
//   `pleach_error_free`. Results go to the places that the last arguments point to. After an error these hold null, 0 or false.
// - A null argument is an error (PLEACH_CODE_INVALID_ARGUMENT) unless the function allows it. A function that returns no error
//   then does nothing, or returns 0, false or null.
// - Keys and values are a pointer and a number of bytes. The pointer may be null if the number is 0. They are only read
//   during the call. Paths and names are strings that end with a zero byte.
// - Each handle has a function that frees it, once; null is allowed. A handle holds all that it needs, so handles may be freed
//   in any order, before or after the store is closed. A handle must not be freed while another thread uses it.
// - Enumerations are passed as numbers, so that an unknown one is an error.
// - Loading the library starts no thread and sets no signal handler. A process may fork before it opens a store. A child that
//   is forked later must not use the handles of its parent.


#ifndef PLEACH_H
#define PLEACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A returned error must be looked at: it may have to be freed.
#if defined(__GNUC__)
#define PLEACH_MUST_USE __attribute__((warn_unused_result))
#else
#define PLEACH_MUST_USE
#endif

// What an error is, and so what to do about it.
typedef enum {
    // No error: the code of a null pointer.
    PLEACH_CODE_NONE = 0,
    // Bytes on disk are damaged; the message names file and offset. The store is not changed: restore the file, or salvage what
    // can be read with `pleach_repair`.
    PLEACH_CODE_CORRUPTION = 1,
    // The operating system refused: no space, no permission, a device error.
    PLEACH_CODE_IO = 2,
    // An argument is null, unknown or out of its range. Nothing was done.
    PLEACH_CODE_INVALID_ARGUMENT = 3,
    // There is no store in the directory, and the caller did not ask to create one.
    PLEACH_CODE_NOT_FOUND = 4,
    // The files are of a format, or use a feature, that this version does not know.
    PLEACH_CODE_UNSUPPORTED = 5,
    // Another holder excludes the caller: another process has the store open. Try again later.
    PLEACH_CODE_CONFLICT = 6,
    // The store or the partition was closed or dropped.
    PLEACH_CODE_CLOSED = 7,
    // An earlier failure stopped all writes: a failed sync, another I/O error of the log, the manifest or background work
    // that is no shortage, damage that background work met, or a panic. Reads go on; writes are refused until the store is
    // opened again.
    PLEACH_CODE_POISONED = 8,
    // The device did not answer in time.
    PLEACH_CODE_TIMED_OUT = 9,
    // A bug in Pleach. The handles that were used can still be freed.
    PLEACH_CODE_INTERNAL = 10,
    // Any other failure.
    PLEACH_CODE_OTHER = 11,
} pleach_code;

// When a write returns, and so which failures it survives.
typedef enum {
    // The operating system has it: it survives a crash of the process, but not of the machine.
    PLEACH_DURABILITY_BUFFERED = 0,
    // It is on the medium, and so is every write before it.
    PLEACH_DURABILITY_SYNC = 1,
} pleach_durability;

// How blocks and separated values are compressed.
typedef enum {
    // Not at all.
    PLEACH_COMPRESSION_NONE = 0,
    // With LZ4, where that saves at least an eighth.
    PLEACH_COMPRESSION_LZ4 = 1,
} pleach_compression;

// How the files of a partition are arranged.
typedef enum {
    // A forest of sorted runs above one large run: writes least. The default.
    PLEACH_SHAPE_FOREST_OVER_BOTTOM = 0,
    // A forest of sorted runs.
    PLEACH_SHAPE_FOREST = 1,
    // One run a stage, each ten times as large as the one above: reads least, writes most.
    PLEACH_SHAPE_LEVELED = 2,
} pleach_shape;

// When new files get a learned index.
typedef enum {
    // Where it is smaller than separators; while many threads write, later. The default.
    PLEACH_LEARNED_INDEX_ADAPTIVE = 0,
    // Where it is smaller than separators.
    PLEACH_LEARNED_INDEX_ALWAYS = 1,
    // Never.
    PLEACH_LEARNED_INDEX_NEVER = 2,
} pleach_learned_index;

// When separated values are copied into the order of their keys.
typedef enum {
    // Once scans have lost as much time to values in disorder as the copies take. The default.
    PLEACH_CONVERSION_FOR_SCANS = 0,
    // Never.
    PLEACH_CONVERSION_NEVER = 1,
    // At each merge of everything.
    PLEACH_CONVERSION_ALWAYS = 2,
} pleach_conversion;

// Puts and deletes over any partitions of one store that become visible and durable together. It keeps the store open.
//
// Thread safety: one thread at a time.
typedef struct pleach_batch pleach_batch;

// A position among the entries of a partition, in the order of the keys, at the moment when the cursor was made. It moves to an
// end, to a key, or by one entry, and lends the entry that it is on. It keeps the store open.
//
// A move returns whether the cursor is on an entry now. If not, `pleach_cursor_status` tells whether there is none, or the move
// failed. A cursor on no entry stays there until it is moved to an end or to a key.
//
// Thread safety: one thread at a time.
typedef struct pleach_cursor pleach_cursor;

// An open store. It stays open until `pleach_db_close`, or until the last handle of it is freed: this one, partitions,
// snapshots, cursors and batches.
//
// Thread safety: any number of threads may use it at the same time. A process that is forked after the open must not
// use it.
typedef struct pleach_db pleach_db;

// An error: a code for programs and a message for people. The caller of the function that returned it owns it.
//
// Thread safety: it does not change, so any number of threads may read it.
typedef struct pleach_error pleach_error;

// How to open a store. Every option can be left alone. Options can be used for many opens, and freed after any of them.
//
// Thread safety: one thread at a time changes them; opens only read them.
typedef struct pleach_options pleach_options;

// An independent key space of a store, ordered by the bytes of the keys. It keeps the store open.
//
// Keys have at most 1 MiB, values at most 512 MiB; both may be empty and have any bytes.
//
// Thread safety: any number of threads may use it at the same time.
typedef struct pleach_partition pleach_partition;

// A consistent view of all partitions at one instant: later writes do not change what is read through it. It keeps the store
// open, and pins memory and files.
//
// Thread safety: any number of threads may use it at the same time.
typedef struct pleach_snapshot pleach_snapshot;

// A value that was read, where it lies: nothing is copied. It pins the memory of a block or memtable until
// `pleach_value_release`, so release it soon, or copy the bytes. It stays valid when the store is closed.
//
// The structure belongs to the caller, for instance on the stack. It may be moved, but not copied and released twice.
//
// Thread safety: any number of threads may read the bytes; one releases them.
typedef struct {
    // The first byte; null if there is no value. The pointer of an empty value is not null.
    const void *data;
    // Bytes of the value.
    size_t len;
    // For Pleach alone.
    uint64_t pin[6];
} pleach_value;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, for instance "0.1.0". The string is constant.
const char *pleach_version(void);

// Frees memory that a function returned as a `char *`, or as an array. Null is allowed.
void pleach_free(void *memory);

// The code of an error; `PLEACH_CODE_NONE` for null.
pleach_code pleach_error_code(const pleach_error *error);

// The message of an error, for people, as UTF-8. It lives as long as the error.
// An empty string for null.
const char *pleach_error_message(const pleach_error *error);

// Whether the cause is a shortage that can pass: a full disk, no descriptor or no memory left. The call has had no effect and
// can be tried again, unless it was a sync. False for null.
bool pleach_error_is_shortage(const pleach_error *error);

// Frees an error. Null is allowed.
void pleach_error_free(pleach_error *error);

// New options with the defaults. The caller frees them with `pleach_options_free`. Null only after a bug in Pleach.
pleach_options *pleach_options_create(void);

// Frees options. Null is allowed.
void pleach_options_free(pleach_options *options);

// Whether a missing store is created; otherwise its open fails with `PLEACH_CODE_NOT_FOUND`. Default: true.
PLEACH_MUST_USE
pleach_error *pleach_options_set_create_if_missing(pleach_options *options,
                                                   bool yes);

// Whether the open of a store that exists fails with `PLEACH_CODE_INVALID_ARGUMENT`. Default: false. An open for reading only
// ignores it.
PLEACH_MUST_USE
pleach_error *pleach_options_set_error_if_exists(pleach_options *options,
                                                 bool yes);

// Whether the files of stores are in memory only, for tests and temporary data. Default: false. All stores opened with these
// options share the files, which last as long as the options or one of the stores. Setting true again starts with none.
PLEACH_MUST_USE
pleach_error *pleach_options_set_in_memory(pleach_options *options,
                                           bool yes);

// Memory budget of a store in bytes, at least 1 MiB: memtables, indexes, filters and cached blocks. Default: a quarter of the
// memory that the process may use, from 64 MiB to 1 GiB. An open refuses what is out of range.
PLEACH_MUST_USE
pleach_error *pleach_options_set_memory(pleach_options *options,
                                        size_t bytes);

// Size of a memtable in bytes: 16 KiB to 1 GiB. Default: an eighth of the memory budget, at most 64 MiB. An open refuses what is
// out of range.
PLEACH_MUST_USE
pleach_error *pleach_options_set_memtable_bytes(pleach_options *options,
                                                size_t bytes);

// How new blocks and separated values are compressed: a `pleach_compression`. Default: `PLEACH_COMPRESSION_NONE`.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
PLEACH_MUST_USE
pleach_error *pleach_options_set_compression(pleach_options *options,
                                             uint32_t compression);

// Whether reads bypass the system's page cache. Default: false. For data that is far larger than a large memory budget.
PLEACH_MUST_USE
pleach_error *pleach_options_set_direct_reads(pleach_options *options,
                                              bool yes);

// How files are arranged: a `pleach_shape`. Default: `PLEACH_SHAPE_FOREST_OVER_BOTTOM`. A store can be opened with any shape.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
PLEACH_MUST_USE
pleach_error *pleach_options_set_shape(pleach_options *options,
                                       uint32_t shape);

// Threads that compact: 1 to 64. Default: one for each processor, at most 4. An open refuses what is out of range.
PLEACH_MUST_USE
pleach_error *pleach_options_set_compaction_threads(pleach_options *options,
                                                    size_t threads);

// Bytes that all compaction threads together may write in a second. Default: 0, no limit.
PLEACH_MUST_USE
pleach_error *pleach_options_set_compaction_bytes_per_second(pleach_options *options,
                                                             uint64_t bytes);

// Bits per key of the filters: 0 (none) to 32. Default: 10, about 1 % false positives. An open refuses what is out of range.
PLEACH_MUST_USE
pleach_error *pleach_options_set_filter_bits_per_key(pleach_options *options,
                                                     float bits);

// When new files get a learned index: a `pleach_learned_index`. Default: `PLEACH_LEARNED_INDEX_ADAPTIVE`.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
PLEACH_MUST_USE
pleach_error *pleach_options_set_learned_index(pleach_options *options,
                                               uint32_t when);

// Length in bytes from which on values are kept outside of the sorted files, so that merges do not move them. Default: 1024;
// with 0 none is.
PLEACH_MUST_USE
pleach_error *pleach_options_set_separate_at(pleach_options *options,
                                             size_t bytes);

// Space that a store with separated values may take, as a multiple of its live data: 1.1 to 4. Default: 1.3. An open refuses
// what is out of range.
PLEACH_MUST_USE
pleach_error *pleach_options_set_space_target(pleach_options *options,
                                              double ratio);

// When separated values are copied into the order of their keys: a `pleach_conversion`. Default:
// `PLEACH_CONVERSION_FOR_SCANS`.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
PLEACH_MUST_USE pleach_error *pleach_options_set_conversion(pleach_options *options, uint32_t when);

// Opens the store in directory `path` for reading and writing, and recovers it after a crash. Creates it, and missing
// directories, if it is not there. One process at a time can have a store open for writing.
//
// `options` may be null for the defaults. On success `*db` is the store, which the caller frees with `pleach_db_free`;
// otherwise it is null.
//
// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store and none may be created; `PLEACH_CODE_INVALID_ARGUMENT` if an option
// is out of range, or the directory has files that are not a store's; `PLEACH_CODE_CONFLICT` if the store is open already;
// `PLEACH_CODE_UNSUPPORTED` for a newer format; `PLEACH_CODE_CORRUPTION` for a damaged file; `PLEACH_CODE_IO`.
PLEACH_MUST_USE
pleach_error *pleach_db_open(const char *path,
                             const pleach_options *options,
                             pleach_db **db);

// Opens the store in directory `path` for reading only, and changes nothing there. Any number of processes can do so together,
// but not while one has the store open for writing. Writes fail with `PLEACH_CODE_IO`.
//
// Otherwise as `pleach_db_open`.
PLEACH_MUST_USE
pleach_error *pleach_db_open_read_only(const char *path,
                                       const pleach_options *options,
                                       pleach_db **db);

// Closes the store: makes all writes durable, ends its threads, and lets others open it at once. From then on every handle of
// the store fails with `PLEACH_CODE_CLOSED`, for reads too. Values that were read before stay valid. Handles must be freed
// all the same, also `db`. A second close returns what the first one did.
//
// Errors: `PLEACH_CODE_POISONED` if an earlier failure had stopped all writes; the message says whether all writes are durable.
// `PLEACH_CODE_IO` if the last sync fails. The store is closed in both cases.
PLEACH_MUST_USE
pleach_error *pleach_db_close(const pleach_db *db);

// Frees the handle. If it was the last one of the store, the store is closed, and an error of that is lost: call
// `pleach_db_close` before. Null is allowed.
void pleach_db_free(pleach_db *db);

// The partition that every store has, in `*partition`. The caller frees it with `pleach_partition_free`.
PLEACH_MUST_USE
pleach_error *pleach_db_default_partition(const pleach_db *db,
                                          pleach_partition **partition);

// The partition called `name` (UTF-8, 1 to 255 bytes), in `*partition`. If it is missing, a durable write creates it. The caller
// frees it with `pleach_partition_free`.
PLEACH_MUST_USE
pleach_error *pleach_db_create_partition(const pleach_db *db,
                                         const char *name,
                                         pleach_partition **partition);

// The partition called `name`, in `*partition`; null if there is none, which is no error. The caller frees it with
// `pleach_partition_free`.
PLEACH_MUST_USE
pleach_error *pleach_db_find_partition(const pleach_db *db,
                                       const char *name,
                                       pleach_partition **partition);

// Drops a partition with all its entries, by one small durable write. Its handles must be freed all the same; they fail with
// `PLEACH_CODE_CLOSED`. Snapshots and cursors that were made before still read it.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for the default partition and one of another store; `PLEACH_CODE_CLOSED` if it was
// dropped before.
PLEACH_MUST_USE
pleach_error *pleach_db_drop_partition(const pleach_db *db,
                                       const pleach_partition *partition);

// The names of all partitions, sorted: `*names` is an array of `*count` strings with a null behind them. The caller frees the
// array, and with it the strings, with one `pleach_free`. A name with a zero byte, which C cannot create, is left out.
PLEACH_MUST_USE
pleach_error *pleach_db_partitions(const pleach_db *db,
                                   char ***names,
                                   size_t *count);

// A consistent view of all partitions as they are now, in `*snapshot`. It pins memory and files, so free it soon, with
// `pleach_snapshot_free`.
PLEACH_MUST_USE
pleach_error *pleach_db_snapshot(const pleach_db *db,
                                 pleach_snapshot **snapshot);

// An empty write batch, in `*batch`. The caller frees it with `pleach_batch_free`.
PLEACH_MUST_USE pleach_error *pleach_db_batch(const pleach_db *db, pleach_batch **batch);

// Makes all writes so far durable, as a write with `PLEACH_DURABILITY_SYNC` does.
PLEACH_MUST_USE pleach_error *pleach_db_sync(const pleach_db *db);

// Writes what is in memory to files, and waits for that. Not needed for durability.
PLEACH_MUST_USE pleach_error *pleach_db_flush(const pleach_db *db);

// Merges each partition into one sorted run, which takes the least space and is the fastest to read, and waits for that.
PLEACH_MUST_USE
pleach_error *pleach_db_compact(const pleach_db *db);

// Reads all files and checks them. Takes about as long as reading the whole store.
//
// Errors: `PLEACH_CODE_CORRUPTION` with the first damage, its file and its offset.
PLEACH_MUST_USE pleach_error *pleach_db_verify(const pleach_db *db);

// The statistics of the store as one JSON object, in `*json`: its members are those of "store" in `pleach stats --json`. Counts
// of work start at zero with each open. The caller frees the string with `pleach_free`.
PLEACH_MUST_USE
pleach_error *pleach_db_stats_json(const pleach_db *db,
                                   char **json);

// Writes all that can be read of the damaged store `from` into a new store `into`, a directory that is missing or empty. Nothing
// in `from` is changed. `options` are those of the new store; null for the defaults.
//
// `*report`, if `report` is not null, is a JSON object with what was found, which the caller frees with `pleach_free`:
// `is_clean` (the store was read whole, with nothing guessed), `damaged_places`, `entries` and `bytes` that were read,
// `partitions`, `damage` (messages of at most 10,000 places), and `guessed` (null, or why ages and partitions were guessed).
//
// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store, `PLEACH_CODE_CONFLICT` if it is open,
// `PLEACH_CODE_INVALID_ARGUMENT` if `into` is not empty; and those of writing. Damage is no error.
PLEACH_MUST_USE
pleach_error *pleach_repair(const char *from,
                            const char *into,
                            const pleach_options *options,
                            char **report);

// Removes all files of the store in directory `path`. Other files stay, and so does the directory. Of `options` only
// `pleach_options_set_in_memory` counts; null for the defaults.
//
// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store, `PLEACH_CODE_CONFLICT` if it is open, `PLEACH_CODE_IO`.
PLEACH_MUST_USE
pleach_error *pleach_destroy(const char *path,
                             const pleach_options *options);

// The name of a partition, which lives as long as the handle. Null for null.
const char *pleach_partition_name(const pleach_partition *partition);

// Frees the handle, not the partition. Null is allowed.
void pleach_partition_free(pleach_partition *partition);

// Reads the value of `key`, in `snapshot` or, if that is null, now. `*value` is lent: it points to where the value lies, and
// the caller releases it with `pleach_value_release`. If there is no value, or after an error, its `data` is null; it need not
// be released then, but may be. What was in `*value` before is overwritten.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for a key that is too long, `PLEACH_CODE_CLOSED`, `PLEACH_CODE_IO`,
// `PLEACH_CODE_CORRUPTION`.
PLEACH_MUST_USE
pleach_error *pleach_partition_get(const pleach_partition *partition,
                                   const pleach_snapshot *snapshot,
                                   const void *key,
                                   size_t key_len,
                                   pleach_value *value);

// Copies the value of `key`, in `snapshot` or, if that is null, now, into `buffer`: as much as its `capacity` has room for.
// `*value_len` is the length of the whole value, so a value longer than `capacity` can be read again with more room. `*found`
// says whether there is a value. `buffer` may be null if `capacity` is 0.
//
// Errors: those of `pleach_partition_get`.
PLEACH_MUST_USE
pleach_error *pleach_partition_get_copy(const pleach_partition *partition,
                                        const pleach_snapshot *snapshot,
                                        const void *key,
                                        size_t key_len,
                                        void *buffer,
                                        size_t capacity,
                                        size_t *value_len,
                                        bool *found);

// Whether `key` has a value, in `snapshot` or, if that is null, now.
//
// Errors: those of `pleach_partition_get`.
PLEACH_MUST_USE
pleach_error *pleach_partition_contains(const pleach_partition *partition,
                                        const pleach_snapshot *snapshot,
                                        const void *key,
                                        size_t key_len,
                                        bool *found);

// Sets the value of `key`. `durability` is a `pleach_durability`.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` if key or value are too long, or for an unknown durability; `PLEACH_CODE_IO` if the
// disk is full (nothing is lost, see `pleach_error_is_shortage`) or the store is open for reading only; `PLEACH_CODE_POISONED`
// after a failure that stopped all writes; `PLEACH_CODE_CLOSED`.
PLEACH_MUST_USE
pleach_error *pleach_partition_put(const pleach_partition *partition,
                                   const void *key,
                                   size_t key_len,
                                   const void *value,
                                   size_t value_len,
                                   uint32_t durability);

// Removes `key`, if it has a value. `durability` is a `pleach_durability`.
//
// Errors: those of `pleach_partition_put`.
PLEACH_MUST_USE
pleach_error *pleach_partition_delete(const pleach_partition *partition,
                                      const void *key,
                                      size_t key_len,
                                      uint32_t durability);

// Removes all keys at or above `lower` and below `upper`, in one batch. A bound whose pointer is null is none. Keys that others
// put meanwhile may stay. It reads all keys of the range, and writes a delete for each; to remove everything, drop the
// partition. `durability` is a `pleach_durability`.
//
// Errors: those of `pleach_partition_put`; `PLEACH_CODE_INVALID_ARGUMENT` if the keys take more than a batch can have, 1 GiB:
// then nothing was removed.
PLEACH_MUST_USE
pleach_error *pleach_partition_delete_range(const pleach_partition *partition,
                                            const void *lower,
                                            size_t lower_len,
                                            const void *upper,
                                            size_t upper_len,
                                            uint32_t durability);

// A cursor over all entries, on none yet, in `*cursor`. It reads the partition as it is now, or in `snapshot` if that is not
// null. It pins memory and files, so free it soon, with `pleach_cursor_free`.
PLEACH_MUST_USE
pleach_error *pleach_partition_cursor(const pleach_partition *partition,
                                      const pleach_snapshot *snapshot,
                                      pleach_cursor **cursor);

// Merges the partition into one sorted run, and waits for that.
PLEACH_MUST_USE pleach_error *pleach_partition_compact(const pleach_partition *partition);

// Merges what the partition holds at or above `lower` and below `upper`, and waits for that. A bound whose pointer is null is
// none. It writes little besides the range, and nothing where there is nothing to merge.
PLEACH_MUST_USE
pleach_error *pleach_partition_compact_range(const pleach_partition *partition,
                                             const void *lower,
                                             size_t lower_len,
                                             const void *upper,
                                             size_t upper_len);

// Estimates the bytes and entries at or above `lower` and below `upper`, without reading data. A bound whose pointer is null is
// none. Entries in memory are not counted; overwritten and deleted ones are, until a compaction removes them.
PLEACH_MUST_USE
pleach_error *pleach_partition_approximate_size(const pleach_partition *partition,
                                                const void *lower,
                                                size_t lower_len,
                                                const void *upper,
                                                size_t upper_len,
                                                uint64_t *size,
                                                uint64_t *entries);

// The statistics of a partition as one JSON object, in `*json`: `entries`, `bytes`, `value_bytes`, `runs`, `sections`, `stages`.
// Entries in memory are not counted. The caller frees the string with `pleach_free`.
PLEACH_MUST_USE
pleach_error *pleach_partition_stats_json(const pleach_partition *partition,
                                          char **json);

// Releases a value, and makes it empty, so that a second release does nothing. Null and an empty value are allowed; a structure
// that no function has filled is not.
void pleach_value_release(pleach_value *value);

// The number of the last write that the snapshot sees. Each put and delete has one more than the one before. 0 for null.
uint64_t pleach_snapshot_sequence_number(const pleach_snapshot *snapshot);

// Frees a snapshot. Cursors and values that were read through it stay valid. Null is allowed.
void pleach_snapshot_free(pleach_snapshot *snapshot);

// Adds a put. `pleach_batch_write` reports a key or value that is too long.
PLEACH_MUST_USE
pleach_error *pleach_batch_put(pleach_batch *batch,
                               const pleach_partition *partition,
                               const void *key,
                               size_t key_len,
                               const void *value,
                               size_t value_len);

// Adds a delete of a key, which need not be there.
PLEACH_MUST_USE
pleach_error *pleach_batch_delete(pleach_batch *batch,
                                  const pleach_partition *partition,
                                  const void *key,
                                  size_t key_len);

// Adds a delete of each key that `partition` has now, at or above `lower` and below `upper`. A bound whose pointer is null is
// none. Keys that are put later, by this batch too, stay. It reads all keys of the range, and each takes room in the batch.
PLEACH_MUST_USE
pleach_error *pleach_batch_delete_range(pleach_batch *batch,
                                        const pleach_partition *partition,
                                        const void *lower,
                                        size_t lower_len,
                                        const void *upper,
                                        size_t upper_len);

// Removes all operations, and the error of one that was refused.
PLEACH_MUST_USE pleach_error *pleach_batch_clear(pleach_batch *batch);

// The number of operations. 0 for null.
size_t pleach_batch_count(const pleach_batch *batch);

// Bytes that the batch will take in the log; at most 1 GiB can be written. 0 for null.
size_t pleach_batch_bytes(const pleach_batch *batch);

// Writes all operations, or none if it returns an error, and empties the batch in both cases. `durability` is a
// `pleach_durability`; an unknown one is an error that leaves the batch as it is.
//
// Errors: `PLEACH_CODE_INVALID_ARGUMENT` if a key, a value or the batch is too long, or a partition belongs to another store;
// those of `pleach_partition_put`.
PLEACH_MUST_USE
pleach_error *pleach_batch_write(pleach_batch *batch,
                                 uint32_t durability);

// Frees a batch without writing it. Null is allowed.
void pleach_batch_free(pleach_batch *batch);

// Moves to the first entry.
bool pleach_cursor_first(pleach_cursor *cursor);

// Moves to the last entry.
bool pleach_cursor_last(pleach_cursor *cursor);

// Moves to the first entry at or above `key`.
bool pleach_cursor_seek(pleach_cursor *cursor, const void *key, size_t key_len);

// Moves to the last entry at or below `key`.
bool pleach_cursor_seek_for_prev(pleach_cursor *cursor, const void *key, size_t key_len);

// Moves to the next entry.
bool pleach_cursor_next(pleach_cursor *cursor);

// Moves to the previous entry.
bool pleach_cursor_prev(pleach_cursor *cursor);

// Whether the cursor is on an entry. False for null.
bool pleach_cursor_valid(const pleach_cursor *cursor);

// The key of the entry, and its length in `*key_len`, until the next move. Null if the cursor is on no entry.
const void *pleach_cursor_key(const pleach_cursor *cursor,
                              size_t *key_len);

// The value of the entry, and its length in `*value_len`, until the next move. Null if the cursor is on no entry, or if the
// value cannot be read, which `pleach_cursor_status` tells. The cursor then stays on the entry.
const void *pleach_cursor_value(pleach_cursor *cursor,
                                size_t *value_len);

// The error of the last move, or of a value that could not be read since; null if there was none. The caller frees it. The
// cursor keeps it until the next move.
PLEACH_MUST_USE
pleach_error *pleach_cursor_status(const pleach_cursor *cursor);

// Frees a cursor. Null is allowed.
void pleach_cursor_free(pleach_cursor *cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLEACH_H */
