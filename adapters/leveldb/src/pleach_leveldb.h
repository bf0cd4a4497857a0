/* What libpleach_leveldb.a has beside the functions of LevelDB's c.h: for the C++ interface. */

#ifndef PLEACH_LEVELDB_H_
#define PLEACH_LEVELDB_H_

#include <leveldb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As leveldb_get, but gives the value to `sink` instead of a copy. Returns 1 if the key was found. */
uint8_t pleach_leveldb_get_to(leveldb_t* db, const leveldb_readoptions_t* options, const char* key, size_t keylen,
                              void (*sink)(void* state, const char* value, size_t length), void* state, char** errptr);

/* As leveldb_write, for a batch in the representation of LevelDB's log: 8 bytes that are ignored, a count in 4 bytes, and
   for each operation a kind (1: put, 0: delete), the key and for a put the value, each behind its length as a varint. */
void pleach_leveldb_write_records(leveldb_t* db, const leveldb_writeoptions_t* options, const char* records, size_t length,
                                  char** errptr);

/* A logger that gives each line, without a line end, to `write`. It must outlive the stores that use it. */
leveldb_logger_t* pleach_leveldb_logger_create(void* state, void (*write)(void* state, const char* line, size_t length));
void pleach_leveldb_logger_destroy(leveldb_logger_t* logger);

/* An Env whose files are in memory; for leveldb_options_set_env, destroyed by leveldb_env_destroy. */
leveldb_env_t* pleach_leveldb_memory_env_create(void);

/* The reverse order of bytes: the comparator "rocksdb.ReverseBytewiseComparator". Its stores keep no keys in memory, unlike
   those of other comparators. Destroyed by leveldb_comparator_destroy. */
leveldb_comparator_t* pleach_leveldb_comparator_create_reverse_bytewise(void);

#ifdef __cplusplus
}
#endif

#endif
