// A tour of Pleach's interface for C: example DIRECTORY
//
//   cargo build --release -p pleach-capi
//   cc -std=c99 -I crates/pleach-capi/include -o example crates/pleach-capi/examples/example.c
//      -L target/release -lpleach_capi -Wl,-rpath,$PWD/target/release
//   ./example /tmp/example-store

#include <pleach.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends the program if there is an error.
static void check(pleach_error *error) {
    if (error != NULL) {
        fprintf(stderr, "error %d: %s\n", (int)pleach_error_code(error), pleach_error_message(error));
        pleach_error_free(error);
        exit(1);
    }
}

static void put(pleach_partition *partition, const char *key, const char *value) {
    check(pleach_partition_put(partition, key, strlen(key), value, strlen(value), PLEACH_DURABILITY_BUFFERED));
}

// A value where it lies, without a copy.
static void print_value(pleach_partition *partition, pleach_snapshot *snapshot, const char *key) {
    pleach_value value;
    check(pleach_partition_get(partition, snapshot, key, strlen(key), &value));
    if (value.data == NULL) {
        printf("%s: none\n", key);
    } else {
        printf("%s: %.*s\n", key, (int)value.len, (const char *)value.data);
    }
    pleach_value_release(&value);
}

static void print_entry(pleach_cursor *cursor) {
    size_t key_len, value_len;
    const void *key = pleach_cursor_key(cursor, &key_len);
    const void *value = pleach_cursor_value(cursor, &value_len);
    if (key == NULL || value == NULL) {
        check(pleach_cursor_status(cursor));
        return;
    }
    printf(" %.*s=%.*s", (int)key_len, (const char *)key, (int)value_len, (const char *)value);
}

// The entries of a partition, forward and backward.
static void print_entries(pleach_partition *partition, pleach_snapshot *snapshot) {
    pleach_cursor *cursor;
    check(pleach_partition_cursor(partition, snapshot, &cursor));
    printf("forward:");
    for (bool found = pleach_cursor_first(cursor); found; found = pleach_cursor_next(cursor)) {
        print_entry(cursor);
    }
    // The end, or an error?
    check(pleach_cursor_status(cursor));
    printf("\nbackward from c:");
    for (bool found = pleach_cursor_seek_for_prev(cursor, "c", 1); found; found = pleach_cursor_prev(cursor)) {
        print_entry(cursor);
    }
    check(pleach_cursor_status(cursor));
    printf("\n");
    pleach_cursor_free(cursor);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: example DIRECTORY\n");
        return 2;
    }

    // Open.
    pleach_options *options = pleach_options_create();
    check(pleach_options_set_memory(options, 64 << 20));
    check(pleach_options_set_compression(options, PLEACH_COMPRESSION_LZ4));
    pleach_db *db;
    check(pleach_db_open(argv[1], options, &db));
    pleach_options_free(options);

    // Put and get.
    pleach_partition *users;
    check(pleach_db_create_partition(db, "users", &users));
    put(users, "alice", "1");
    put(users, "bob", "2");
    print_value(users, NULL, "alice");
    print_value(users, NULL, "carol");
    char buffer[16];
    size_t len;
    bool found;
    check(pleach_partition_get_copy(users, NULL, "bob", 3, buffer, sizeof buffer, &len, &found));
    printf("bob, copied: %.*s\n", (int)len, buffer);

    // A batch becomes visible and durable as one; a snapshot does not see it.
    pleach_snapshot *before;
    check(pleach_db_snapshot(db, &before));
    pleach_batch *batch;
    check(pleach_db_batch(db, &batch));
    check(pleach_batch_put(batch, users, "carol", 5, "3", 1));
    check(pleach_batch_delete(batch, users, "alice", 5));
    check(pleach_batch_write(batch, PLEACH_DURABILITY_SYNC));
    pleach_batch_free(batch);
    print_value(users, before, "alice");
    print_value(users, NULL, "alice");
    print_entries(users, NULL);
    print_entries(users, before);
    pleach_snapshot_free(before);

    // Errors have a code and a message.
    pleach_error *error = pleach_partition_put(users, "k", 1, "v", 1, 7);
    printf("error %d: %s\n", (int)pleach_error_code(error), pleach_error_message(error));
    pleach_error_free(error);

    // Partitions.
    pleach_partition *sessions;
    check(pleach_db_create_partition(db, "sessions", &sessions));
    put(sessions, "4711", "alice");
    put(sessions, "4712", "bob");
    put(sessions, "4713", "bob");
    check(pleach_partition_delete_range(sessions, "4712", 4, NULL, 0, PLEACH_DURABILITY_BUFFERED));
    print_entries(sessions, NULL);
    char **names;
    size_t count;
    check(pleach_db_partitions(db, &names, &count));
    printf("%zu partitions:", count);
    for (size_t i = 0; i < count; i++) {
        printf(" %s", names[i]);
    }
    printf("\n");
    pleach_free(names);
    check(pleach_db_drop_partition(db, sessions));
    pleach_partition_free(sessions);

    // Close: the only place where the last error of a write shows.
    check(pleach_db_close(db));
    pleach_partition_free(users);
    pleach_db_free(db);
    printf("closed\n");
    return 0;
}
