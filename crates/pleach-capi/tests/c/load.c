// What loading the library changes, and a fork before the open: load LIBRARY DIRECTORY FUNCTION...
//
// The library is loaded while the program runs, so that the states before and after can be compared.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pleach.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(name) name##_type *name##_loaded = (name##_type *)dlsym(library, #name)

typedef __typeof__(pleach_version) pleach_version_type;
typedef __typeof__(pleach_options_create) pleach_options_create_type;
typedef __typeof__(pleach_options_free) pleach_options_free_type;
typedef __typeof__(pleach_db_open) pleach_db_open_type;
typedef __typeof__(pleach_db_close) pleach_db_close_type;
typedef __typeof__(pleach_db_free) pleach_db_free_type;
typedef __typeof__(pleach_db_default_partition) pleach_db_default_partition_type;
typedef __typeof__(pleach_partition_put) pleach_partition_put_type;
typedef __typeof__(pleach_partition_contains) pleach_partition_contains_type;
typedef __typeof__(pleach_partition_free) pleach_partition_free_type;

#define MUST(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);   \
            _exit(1);                                                         \
        }                                                                     \
    } while (0)

static int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    MUST(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

static void handlers(void (*all[65])(int)) {
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        all[number] = sigaction(number, NULL, &action) == 0 ? action.sa_handler : SIG_DFL;
    }
}

int main(int argc, char **argv) {
    MUST(argc > 3);
    void (*before[65])(int) = {0}, (*after[65])(int) = {0};
    handlers(before);
    MUST(count_threads() == 1);

    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    for (int i = 3; i < argc; i++) {
        if (dlsym(library, argv[i]) == NULL) {
            fprintf(stderr, "%s is declared, but not exported\n", argv[i]);
            return 1;
        }
    }
    LOAD(pleach_version);
    LOAD(pleach_options_create);
    LOAD(pleach_options_free);
    LOAD(pleach_db_open);
    LOAD(pleach_db_close);
    LOAD(pleach_db_free);
    LOAD(pleach_db_default_partition);
    LOAD(pleach_partition_put);
    LOAD(pleach_partition_contains);
    LOAD(pleach_partition_free);
    MUST(strlen(pleach_version_loaded()) > 0);
    pleach_options *options = pleach_options_create_loaded();

    handlers(after);
    MUST(count_threads() == 1);
    MUST(memcmp(before, after, sizeof before) == 0);

    pid_t child = fork();
    MUST(child >= 0);
    pleach_db *db;
    pleach_partition *partition;
    bool found = false;
    if (child == 0) {
        MUST(pleach_db_open_loaded(argv[2], options, &db) == NULL);
        MUST(pleach_db_default_partition_loaded(db, &partition) == NULL);
        MUST(pleach_partition_put_loaded(partition, "child", 5, "", 0, PLEACH_DURABILITY_BUFFERED) == NULL);
        MUST(count_threads() > 1);
        MUST(pleach_db_close_loaded(db) == NULL);
        pleach_partition_free_loaded(partition);
        pleach_db_free_loaded(db);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(status == 0);
    MUST(pleach_db_open_loaded(argv[2], options, &db) == NULL);
    pleach_options_free_loaded(options);
    MUST(pleach_db_default_partition_loaded(db, &partition) == NULL);
    MUST(pleach_partition_contains_loaded(partition, NULL, "child", 5, &found) == NULL);
    MUST(found);
    MUST(pleach_db_close_loaded(db) == NULL);
    pleach_partition_free_loaded(partition);
    pleach_db_free_loaded(db);
    handlers(after);
    // An open may take this one for the mapped log. The library then stays, because the handler does.
    bool has_handler = after[SIGBUS] != before[SIGBUS];
    after[SIGBUS] = before[SIGBUS];
    MUST(memcmp(before, after, sizeof before) == 0);
    dlclose(library);
    MUST(!has_handler || dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL);
    printf("nothing at load, and a fork before the open\n");
    return 0;
}
