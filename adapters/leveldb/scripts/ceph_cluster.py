"""A Ceph cluster on this machine, of Debian's binaries: one monitor, one OSD, on loopback and without authentication.

Both keep their metadata in a store with LevelDB's interface. With a preloaded library, that store is Pleach.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import uuid

# A file that this program puts into a directory that it makes, and without which it removes nothing.
MADE_HERE = "MADE-BY-SCRIPTS-CEPH"

STORES = {
    # Objects are files; their attributes and omaps lie in the store. Small attributes are put there too.
    "filestore": """
osd objectstore = filestore
filestore omap backend = {backend}
filestore max inline xattr size = 1
filestore max inline xattr size xfs = 1
filestore max inline xattr size btrfs = 1
filestore max inline xattr size other = 1
osd max object name len = 256
osd max object namespace len = 64
osd journal = {directory}/osd/journal
osd journal size = 1024
""",
    # Metadata and data of all objects lie in the store.
    "kstore": """
osd objectstore = kstore
kstore backend = {backend}
enable experimental unrecoverable data corrupting features = kstore
""",
    "bluestore": """
osd objectstore = bluestore
bluestore block size = 21474836480
""",
}

CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
ms bind msgr1 = false
ms bind ipv6 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {directory}
log file = {directory}/$name.log
pid file = {directory}/$name.pid
admin socket = {directory}/$name.asok
keyring = {directory}/keyring
err to stderr = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
mon data = {directory}/mon
mon data avail warn = 1
mon data avail crit = 1
mon osd full ratio = 0.99
mon osd nearfull ratio = 0.98
osd data = {directory}/osd
osd fast shutdown = false
osd class load list = *
osd op num shards = 4
osd delete sleep = 0.0001
leveldb cache size = {cache}
leveldb write buffer size = {write_buffer}
leveldb log =
rocksdb cache size = {cache}
{store}
"""


def make_empty(directory):
    """Makes a directory, or empties one that this program made. Refuses one that holds anything else."""
    mark = directory / MADE_HERE
    found = sorted(directory.iterdir()) if directory.exists() else []
    if found and not (mark.is_file() and not mark.is_symlink()):
        raise SystemExit(f"{directory} holds {found[0].name}, and this script did not make it: give an empty or a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    # First, and removed last, so that an interruption leaves a directory that the next run takes.
    mark.write_text("scripts/ceph removes this directory's contents when it makes the next cluster here.\n")
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()


@contextlib.contextmanager
def uninterrupted():
    """Puts off Ctrl-C and a request to end."""
    came = []
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Not by a mask: another thread would take the signal, and this one would be interrupted all the same.
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


class MemoryGroup:
    """A control group that holds the memory of processes and their page cache; of version 1 or 2, where this user may make one."""

    def __init__(self, name, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        first = (root / "memory" / "memory.limit_in_bytes").exists()
        self.group = (root / "memory" if first else root) / name
        self.group.mkdir(exist_ok=True)
        (self.group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))

    def enter(self):
        """Puts the calling process into the group."""
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.group.rmdir()


class Cluster:
    """A monitor and an OSD in `directory`, which is emptied first: see `make_empty`. `memory` limits the OSD, its page cache included.

    The caller stops it, also if `create` fails or is interrupted.
    """

    def __init__(self, directory, store="kstore", backend="leveldb", preload=None, cache=256 << 20, write_buffer=32 << 20,
                 port=40789, memory=None):
        self.directory = pathlib.Path(directory).absolute()
        self.preload = preload
        self.backend = backend
        self.store = store
        make_empty(self.directory)
        (self.directory / "counters").mkdir()
        self.configuration = self.directory / "ceph.conf"
        self.fsid = str(uuid.uuid4())
        text = CONFIGURATION.format(
            fsid=self.fsid,
            port=port,
            directory=self.directory,
            cache=cache,
            write_buffer=write_buffer,
            store=STORES[store].format(backend=backend, directory=self.directory),
        )
        self.configuration.write_text(text)
        self.address = f"[v2:127.0.0.1:{port}]"
        self.daemons = {}
        self.group = MemoryGroup(f"pleach-ceph-{port}", memory) if memory else None

    def run(self, *command, preload=False, timeout=120):
        """Runs a command with this cluster's configuration and returns what it prints."""
        done = subprocess.run(
            command,
            env=self._environment(preload),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            text=True,
            cwd=self.directory,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def ceph(self, *arguments):
        """A command of the monitor."""
        return self.run("ceph", "-c", self.configuration, "--connect-timeout", "30", *arguments)

    def create(self):
        """Makes both stores, starts both daemons and waits until the OSD is up."""
        conf = ("-c", self.configuration)
        keyring, monmap = self.directory / "keyring", self.directory / "monmap"
        self.run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self.run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", self.address, monmap)
        (self.directory / "mon").mkdir()
        # A monitor keeps its store's kind in a file beside it.
        monitor = ("ceph-mon", *conf, "--id", "a", "--mon-keyvaluedb", self._monitor_backend())
        self.run(*monitor, "--mkfs", "--monmap", monmap, "--keyring", keyring, preload=True)
        self.start("mon")
        self.wait_for(lambda: json.loads(self.ceph("quorum_status"))["quorum"], "a quorum")
        (self.directory / "osd").mkdir()
        osd = str(uuid.uuid4())
        self.ceph("osd", "new", osd)
        self.run("ceph-osd", *conf, "--id", "0", "--mkfs", "--osd-uuid", osd, preload=True, timeout=300)
        self.start("osd")
        self.wait_until_up()

    def _monitor_backend(self):
        return self.backend if self.store != "bluestore" else "rocksdb"

    def _environment(self, preload):
        environment = dict(os.environ)
        if preload and self.preload:
            environment["LD_PRELOAD"] = str(self.preload)
            environment["PLEACH_LEVELDB_COUNTERS"] = str(self.directory / "counters")
        return environment

    def start(self, daemon):
        """Starts `mon` or `osd`."""
        identity = {"mon": "a", "osd": "0"}[daemon]
        # Its own session: Ctrl-C reaches this program alone, which then ends the daemons in order.
        with uninterrupted(), open(self.directory / f"{daemon}.out", "ab") as output:
            self.daemons[daemon] = subprocess.Popen(
                [f"ceph-{daemon}", "-f", "-c", self.configuration, "--id", identity],
                env=self._environment(True),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
                preexec_fn=self.group.enter if self.group and daemon == "osd" else None,
            )

    def kill(self, daemon):
        """Kills a daemon as a power switch would, but that the system's page cache stays."""
        self.daemons[daemon].send_signal(signal.SIGKILL)
        self.daemons[daemon].wait()

    def stop(self):
        """Ends both daemons and lets them close their stores. Ctrl-C does not interrupt this."""
        late = []
        with uninterrupted():
            for daemon in ("osd", "mon"):
                process = self.daemons.pop(daemon, None)
                if process is None or process.poll() is not None:
                    continue
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    late.append(daemon)
            if self.group:
                self.group.remove()
                self.group = None
        if late:
            raise RuntimeError(f"{' and '.join(late)} did not end within 60 s")

    def wait_for(self, is_so, what, seconds=120):
        """Waits until a condition holds; fails if a daemon has ended meanwhile."""
        end = time.monotonic() + seconds
        while True:
            try:
                if is_so():
                    return
            except (RuntimeError, subprocess.TimeoutExpired):
                pass
            for daemon, process in self.daemons.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{daemon} has ended: see {self.directory / daemon}.out and the log beside it")
            if time.monotonic() > end:
                raise RuntimeError(f"no {what} within {seconds} s")
            time.sleep(0.2)

    def wait_until_up(self):
        """Waits until the OSD serves."""
        self.wait_for(lambda: json.loads(self.ceph("osd", "stat", "-f", "json"))["num_up_osds"] == 1, "OSD that is up")

    def create_pool(self, name, placement_groups=32):
        """Makes a pool and waits until it serves."""
        self.ceph("osd", "pool", "create", name, str(placement_groups))
        self.ceph("osd", "pool", "application", "enable", name, "check")
        self.run("rados", "-c", self.configuration, "-p", name, "put", "first", "/dev/null", timeout=120)

    def remove_pool(self, name):
        """Removes a pool; the OSD removes its objects afterwards."""
        self.ceph("osd", "pool", "rm", name, name, "--yes-i-really-really-mean-it")

    def counters(self):
        """What each store was asked for, by its path: see src/counters.h."""
        names = ("gets", "puts", "deletes", "batches", "iterators", "seeks", "steps")
        sums = {}
        for file in sorted((self.directory / "counters").iterdir()):
            data = file.read_bytes()
            store = data[1:248].split(b"\0")[0].decode()
            counts = [int.from_bytes(data[at : at + 8], "little") for at in range(248, 304, 8)]
            total = sums.setdefault(store, dict.fromkeys(names, 0))
            for name, count in zip(names, counts):
                total[name] += count
        return sums

    def gets_of_osd(self):
        """How often the OSD has asked its store for a value, and the seconds that it waited for the answers."""
        dump = json.loads(self.run("ceph", "--admin-daemon", self.directory / "osd.0.asok", "perf", "dump"))
        latency = dump[self.backend if self.store != "bluestore" else "rocksdb"]
        latency = next(counter for name, counter in latency.items() if name.endswith("get_latency"))
        return latency["avgcount"], latency["sum"]

    def disk(self, daemon="osd"):
        """Bytes on the disk of a daemon's directory."""
        return int(subprocess.check_output(["du", "-sB1", self.directory / daemon]).split()[0])
