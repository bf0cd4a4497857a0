/* RocksDB asks the program by this function, a weak symbol, whether it may use io_uring. */

#include <stdbool.h>

static bool enabled = true;

bool RocksDbIOUringEnable(void) { return enabled; }

void bench_peers_allow_io_uring(bool allowed) { enabled = allowed; }
