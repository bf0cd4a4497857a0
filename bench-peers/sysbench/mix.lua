-- Equal parts of read, update and insert, for sysbench 1.0: Fig. 13 of "Optimizing Key-Value Stores for Flash-Based SSDs via Key
-- Reshaping". The paper sends them to MongoDB. Here sysbench calls the store in its own process: there is no mongod.
--
--   sysbench mix.lua --engine=redb --threads=4 prepare
--   sysbench mix.lua --engine=redb --threads=4 --time=10 run
--   sysbench mix.lua --engine=redb cleanup
--
-- `prepare` inserts `rows` documents into each table. A transaction of `run` reads a document, updates a field of another one
-- and inserts a new one, each in a table at random. Documents are chosen among those of `prepare` as `--rand-type` says. Keys are
-- 16 random digits, and a document begins with its key. `cleanup` removes the tables and leaves the store's files.
--
-- Engines need more stack than the 64 KiB that sysbench gives a thread: add `--thread-stack-size=8M`.
--
-- The functions are those of `capi/src/functions.rs`, whose comments are their contract.

local ffi = require("ffi")

ffi.cdef[[
typedef struct peers_session peers_session;
peers_session *peers_open(const char *engine, const char *folder, uint64_t memory_bytes, const char *durability,
                          const char *settings, uint32_t tables);
int peers_close(peers_session *session);
int peers_insert(peers_session *session, uint32_t table, const char *key, size_t key_len, const char *row, size_t row_len);
int peers_update(peers_session *session, uint32_t table, const char *key, size_t key_len, size_t offset, const char *field,
                 size_t field_len);
int peers_read(peers_session *session, uint32_t table, const char *key, size_t key_len, char *row, size_t capacity,
               size_t *row_len);
int peers_drop_tables(peers_session *session);
int peers_key(uint64_t index, char *to);
const char *peers_error(void);
int memcmp(const void *a, const void *b, size_t len);
]]

sysbench.cmdline.options = {
   library = {"The engines as a library", "target/release/libbench_peers_capi.so"},
   engine = {"Engine, as `bench-peers list` names it", "redb"},
   dir = {"Folder of the store", "sysbench.data"},
   memory = {"Bytes of memory for buffers and caches", 64 * 1024 * 1024},
   durability = {"When a write is done: buffered or sync", "buffered"},
   tune = {"Settings of the engine, as <name>=<value>,...", ""},
   tables = {"Number of tables", 2},
   rows = {"Documents that prepare inserts into each table", 100000},
   document_size = {"Bytes of a document, at least 32", 500},
   run_number = {"Number of this run on the store; each one inserts other keys", 0},
   warmup = {"Documents that all threads read together before the run", 10000},
}

local KEY_LEN = 16
-- The field that updates set.
local FIELD_OFFSET, FIELD_LEN = 16, 8
-- Documents are cut from so many random bytes.
local POOL_LEN = 64 * 1024
-- More documents than a run inserts. Keys are numbered up to 10^16.
local RUN_KEYS = 1e10

-- Set by `open`: sysbench knows its options only then.
local options, peers, session
local key, row, row_len = ffi.new("char[?]", KEY_LEN), nil, ffi.new("size_t[1]")
local pool
local inserted = 0

-- The answer of a function, if it has not failed.
local function checked(answer)
   if answer < 0 then
      error(ffi.string(peers.peers_error()), 2)
   end
   return answer
end

local function open()
   options = sysbench.opt
   if options.document_size < FIELD_OFFSET + FIELD_LEN + 8 then
      error("--document_size is at least 32")
   end
   peers = ffi.load(options.library)
   session = peers.peers_open(options.engine, options.dir, options.memory, options.durability, options.tune, options.tables)
   if session == nil then
      error(ffi.string(peers.peers_error()), 2)
   end
end

local function close()
   checked(peers.peers_close(session))
   session = nil
end

local function make_documents()
   row = ffi.new("char[?]", options.document_size)
   pool = ffi.new("char[?]", POOL_LEN + options.document_size)
   for at = 0, POOL_LEN + options.document_size - 1 do
      pool[at] = sysbench.rand.uniform(97, 122)
   end
end

-- Puts the key of a document into `key`.
local function set_key(id)
   checked(peers.peers_key(id, key))
end

local function random_bytes()
   return pool + sysbench.rand.uniform(0, POOL_LEN - 1)
end

local function random_table()
   return sysbench.rand.uniform(0, options.tables - 1)
end

-- A document that `prepare` has inserted.
local function random_id()
   return sysbench.rand.default(1, options.rows)
end

local function insert(table, id)
   set_key(id)
   ffi.copy(row, random_bytes(), options.document_size)
   ffi.copy(row, key, KEY_LEN)
   checked(peers.peers_insert(session, table, key, KEY_LEN, row, options.document_size))
end

local function update(table, id)
   set_key(id)
   if checked(peers.peers_update(session, table, key, KEY_LEN, FIELD_OFFSET, random_bytes(), FIELD_LEN)) == 0 then
      error("document " .. id .. " is missing")
   end
end

local function read(table, id)
   set_key(id)
   if checked(peers.peers_read(session, table, key, KEY_LEN, row, options.document_size, row_len)) == 0 then
      error("document " .. id .. " is missing")
   end
   if row_len[0] ~= options.document_size or ffi.C.memcmp(row, key, KEY_LEN) ~= 0 then
      error("document " .. id .. " is not what was inserted")
   end
end

local function prepare()
   open()
   make_documents()
   for id = 1 + sysbench.tid, options.rows, options.threads do
      for table = 0, options.tables - 1 do
         insert(table, id)
      end
   end
   close()
end

local function cleanup()
   open()
   checked(peers.peers_drop_tables(session))
   close()
end

sysbench.cmdline.commands = {
   prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND},
   cleanup = {cleanup},
}

-- Keeps the store open until the last thread has ended.
function init()
   open()
end

function done()
   close()
end

function thread_init()
   open()
   make_documents()
   for _ = 1, options.warmup / options.threads do
      read(random_table(), random_id())
   end
end

function thread_done()
   close()
end

function event()
   read(random_table(), random_id())
   update(random_table(), random_id())
   insert(random_table(), options.rows + options.run_number * RUN_KEYS + inserted * options.threads + sysbench.tid + 1)
   inserted = inserted + 1
end
