// The objects of the caller's own libleveldb that the adapter has to recognise: its default Env, caches, Envs in memory.

#pragma once

#include <leveldb/c.h>

#include <cstddef>

namespace surroundings {

// Env::Default() of the libleveldb that the code at `caller` uses; null if it cannot be found.
const void* default_env(const void* caller);

// The capacity that `cache` was made with by NewLRUCache; 0 for any other cache.
size_t capacity_of_cache(const void* cache);

// The Env in memory behind what NewMemEnv returned; null for any other Env.
leveldb_env_t* memory_env(const void* env);

// Whether PLEACH_ENV=ignore accepts a custom Env without using it.
bool ignores_env();

}  // namespace surroundings
