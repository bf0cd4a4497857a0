/*
 * Plain functions over WiredTiger's interface, which is structures of function pointers, some of them variadic.
 *
 * All keys and values are byte strings (format "u"). Functions return WiredTiger's error code, zero for success. A key or
 * value that is handed out stays valid until the next call with the same cursor.
 */

#include <stddef.h>
#include <stdint.h>
#include <wiredtiger.h>

int shim_open(const char *home, const char *config, WT_CONNECTION **connection)
{
    return wiredtiger_open(home, NULL, config, connection);
}

int shim_close(WT_CONNECTION *connection)
{
    return connection->close(connection, NULL);
}

int shim_open_session(WT_CONNECTION *connection, const char *config, WT_SESSION **session)
{
    return connection->open_session(connection, NULL, config, session);
}

int shim_close_session(WT_SESSION *session)
{
    return session->close(session, NULL);
}

int shim_create(WT_SESSION *session, const char *uri, const char *config)
{
    return session->create(session, uri, config);
}

int shim_drop(WT_SESSION *session, const char *uri)
{
    return session->drop(session, uri, NULL);
}

int shim_checkpoint(WT_SESSION *session)
{
    return session->checkpoint(session, NULL);
}

int shim_flush_log(WT_SESSION *session)
{
    return session->log_flush(session, "sync=on");
}

int shim_begin(WT_SESSION *session, const char *config)
{
    return session->begin_transaction(session, config);
}

int shim_commit(WT_SESSION *session)
{
    return session->commit_transaction(session, NULL);
}

int shim_roll_back(WT_SESSION *session)
{
    return session->rollback_transaction(session, NULL);
}

/* Removes what lies between the keys of two positioned cursors, both inclusive. */
int shim_truncate(WT_SESSION *session, WT_CURSOR *first, WT_CURSOR *last)
{
    return session->truncate(session, NULL, first, last, NULL);
}

int shim_open_cursor(WT_SESSION *session, const char *uri, WT_CURSOR **cursor)
{
    return session->open_cursor(session, uri, NULL, NULL, cursor);
}

int shim_close_cursor(WT_CURSOR *cursor)
{
    return cursor->close(cursor);
}

int shim_reset(WT_CURSOR *cursor)
{
    return cursor->reset(cursor);
}

static void set_key(WT_CURSOR *cursor, const void *key, size_t key_len)
{
    WT_ITEM item = {.data = key, .size = key_len};
    cursor->set_key(cursor, &item);
}

int shim_insert(WT_CURSOR *cursor, const void *key, size_t key_len, const void *value, size_t value_len)
{
    WT_ITEM item = {.data = value, .size = value_len};
    set_key(cursor, key, key_len);
    cursor->set_value(cursor, &item);
    return cursor->insert(cursor);
}

int shim_remove(WT_CURSOR *cursor, const void *key, size_t key_len)
{
    set_key(cursor, key, key_len);
    return cursor->remove(cursor);
}

int shim_search(WT_CURSOR *cursor, const void *key, size_t key_len)
{
    set_key(cursor, key, key_len);
    return cursor->search(cursor);
}

/* Goes to the key or a neighbour; `exact` is negative for a smaller one and positive for a larger one. */
int shim_search_near(WT_CURSOR *cursor, const void *key, size_t key_len, int *exact)
{
    set_key(cursor, key, key_len);
    return cursor->search_near(cursor, exact);
}

int shim_next(WT_CURSOR *cursor)
{
    return cursor->next(cursor);
}

int shim_prev(WT_CURSOR *cursor)
{
    return cursor->prev(cursor);
}

int shim_key(WT_CURSOR *cursor, const void **key, size_t *key_len)
{
    WT_ITEM item = {.data = NULL, .size = 0};
    int error = cursor->get_key(cursor, &item);
    *key = item.data;
    *key_len = item.size;
    return error;
}

/* The key of a cursor on "metadata:", which is a string. */
int shim_name(WT_CURSOR *cursor, const char **name)
{
    return cursor->get_key(cursor, name);
}

int shim_value(WT_CURSOR *cursor, const void **value, size_t *value_len)
{
    WT_ITEM item = {.data = NULL, .size = 0};
    int error = cursor->get_value(cursor, &item);
    *value = item.data;
    *value_len = item.size;
    return error;
}

/* Statistics of the connection, by names of our own. */
enum shim_statistic {
    SHIM_LOG_BYTES,
    SHIM_BLOCK_WRITTEN_BYTES,
    SHIM_BLOCK_READ_BYTES,
    SHIM_CACHE_BYTES,
    SHIM_CACHE_DIRTY_BYTES,
    SHIM_CACHE_INTERNAL_BYTES,
    SHIM_EVICTED_BY_APPLICATION,
    SHIM_APPLICATION_EVICTION_US,
    SHIM_APPLICATION_CACHE_WAIT_US,
    SHIM_CHECKPOINTS,
};

static int statistic_key(enum shim_statistic statistic)
{
    switch (statistic) {
    case SHIM_LOG_BYTES:
        return WT_STAT_CONN_LOG_BYTES_WRITTEN;
    case SHIM_BLOCK_WRITTEN_BYTES:
        return WT_STAT_CONN_BLOCK_BYTE_WRITE;
    case SHIM_BLOCK_READ_BYTES:
        return WT_STAT_CONN_BLOCK_BYTE_READ;
    case SHIM_CACHE_BYTES:
        return WT_STAT_CONN_CACHE_BYTES_INUSE;
    case SHIM_CACHE_DIRTY_BYTES:
        return WT_STAT_CONN_CACHE_BYTES_DIRTY;
    case SHIM_CACHE_INTERNAL_BYTES:
        return WT_STAT_CONN_CACHE_BYTES_INTERNAL;
    case SHIM_EVICTED_BY_APPLICATION:
        return WT_STAT_CONN_CACHE_EVICTION_APP;
    case SHIM_APPLICATION_EVICTION_US:
        return WT_STAT_CONN_APPLICATION_EVICT_TIME;
    case SHIM_APPLICATION_CACHE_WAIT_US:
        return WT_STAT_CONN_APPLICATION_CACHE_TIME;
    case SHIM_CHECKPOINTS:
        return WT_STAT_CONN_TXN_CHECKPOINT;
    }
    return 0;
}

/* Reads a statistic from a cursor on "statistics:". */
int shim_statistic(WT_CURSOR *cursor, int statistic, uint64_t *value)
{
    const char *description, *printable;
    cursor->set_key(cursor, statistic_key((enum shim_statistic)statistic));
    int error = cursor->search(cursor);
    return error ? error : cursor->get_value(cursor, &description, &printable, value);
}
