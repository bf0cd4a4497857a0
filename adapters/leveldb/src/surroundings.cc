#include "surroundings.h"

// For the reason that adapter.cc gives.
#define leveldb pleach_leveldb_new_abi
#include <leveldb/cache.h>
#include <leveldb/env.h>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "pleach_leveldb.h"

// What the base classes of MemEnv define outside their headers.
namespace leveldb {

Env::Env() = default;
Env::~Env() = default;
EnvWrapper::~EnvWrapper() = default;
Status Env::NewAppendableFile(const std::string& name, WritableFile**) { return Status::NotSupported("NewAppendableFile", name); }
Status Env::RemoveFile(const std::string& name) { return DeleteFile(name); }
Status Env::DeleteFile(const std::string& name) { return RemoveFile(name); }
Status Env::RemoveDir(const std::string& name) { return DeleteDir(name); }
Status Env::DeleteDir(const std::string& name) { return RemoveDir(name); }

}  // namespace leveldb

// A program that links both libraries lets the linker resolve this one, even if its libleveldb is a static one.
extern "C" leveldb::Env* weak_default_env() __asm__("_ZN7leveldb3Env7DefaultEv") __attribute__((weak));

namespace {

constexpr const char* DEFAULT_ENV = "_ZN7leveldb3Env7DefaultEv";
constexpr const char* NEW_LRU_CACHE = "_ZN7leveldb11NewLRUCacheEm";

// The function `name` of the libleveldb that the code at `caller` uses, but not `own`.
void* find(const char* name, const void* caller, void* own) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found != nullptr && found != own) return found;
    // A library that was loaded with RTLD_LOCAL is found through the object that depends on it.
    Dl_info object;
    if (dladdr(caller, &object) == 0 || object.dli_fname == nullptr) return nullptr;
    void* handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return nullptr;
    found = dlsym(handle, name);
    dlclose(handle);
    return found != own ? found : nullptr;
}

// Both maps hold what this library has handed out. A cache has no call here when it is deleted, and another object may get
// its address, so a size can be that of an earlier cache. It is a hint for memory, nothing else.
struct Known {
    std::mutex lock;
    std::map<const void*, size_t> caches;
    std::map<const void*, leveldb_env_t*> memory_envs;
};

// Never destroyed: stores may be closed by destructors of static objects.
Known& known() {
    static Known* known = new Known;
    return *known;
}

}  // namespace

namespace surroundings {

const void* default_env(const void* caller) {
    if (weak_default_env != nullptr) return weak_default_env();
    void* function = find(DEFAULT_ENV, caller, nullptr);
    return function != nullptr ? reinterpret_cast<leveldb::Env* (*)()>(function)() : nullptr;
}

size_t capacity_of_cache(const void* cache) {
    std::lock_guard<std::mutex> guard(known().lock);
    auto found = known().caches.find(cache);
    return found != known().caches.end() ? found->second : 0;
}

leveldb_env_t* memory_env(const void* env) {
    std::lock_guard<std::mutex> guard(known().lock);
    auto found = known().memory_envs.find(env);
    return found != known().memory_envs.end() ? found->second : nullptr;
}

bool ignores_env() {
    const char* value = std::getenv("PLEACH_ENV");
    return value != nullptr && std::strcmp(value, "ignore") == 0;
}

}  // namespace surroundings

// An Env whose stores are in memory. Files that a program makes by it are those of the Env below.
namespace {

class MemEnv final : public leveldb::EnvWrapper {
  public:
    explicit MemEnv(leveldb::Env* base) : leveldb::EnvWrapper(base), files_(pleach_leveldb_memory_env_create()) {
        std::lock_guard<std::mutex> guard(known().lock);
        known().memory_envs[this] = files_;
    }
    ~MemEnv() override {
        {
            std::lock_guard<std::mutex> guard(known().lock);
            known().memory_envs.erase(this);
        }
        leveldb_env_destroy(files_);
    }

  private:
    leveldb_env_t* files_;
};

}  // namespace

leveldb::Cache* new_lru_cache(size_t) __asm__("_ZN7leveldb11NewLRUCacheEm") __attribute__((visibility("default"), used));
leveldb::Env* new_mem_env(leveldb::Env*) __asm__("_ZN7leveldb9NewMemEnvEPNS_3EnvE")
    __attribute__((visibility("default"), used));

leveldb::Cache* new_lru_cache(size_t capacity) {
    auto own = reinterpret_cast<void*>(&new_lru_cache);
    auto real = reinterpret_cast<leveldb::Cache* (*)(size_t)>(find(NEW_LRU_CACHE, __builtin_return_address(0), own));
    if (real == nullptr) return nullptr;
    leveldb::Cache* cache = real(capacity);
    std::lock_guard<std::mutex> guard(known().lock);
    known().caches[cache] = capacity;
    return cache;
}

leveldb::Env* new_mem_env(leveldb::Env* base) { return new MemEnv(base); }
