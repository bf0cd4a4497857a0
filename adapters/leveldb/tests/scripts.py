#!/usr/bin/python3
"""Tests of scripts/ceph, with programs that stand for Ceph's, and of scripts/check."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ADAPTER = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ADAPTER / "scripts"
sys.path.insert(0, str(SCRIPTS))
import ceph_cluster  # noqa: E402

# A daemon that is started with -f notes its process, and stays. A file named `slow` or `broken` changes what `ceph osd new` does.
PROGRAM = """#!/bin/sh
case "$0 $*" in
*/ceph-mon\\ -f*|*/ceph-osd\\ -f*) echo $$ >>"$PROCESSES"; exec sleep 1000 ;;
*osd\\ new*)
    [ ! -e "$PROCESSES.slow" ] || exec sleep 1000
    [ ! -e "$PROCESSES.broken" ] || exit 1
    ;;
*) echo '{"quorum": [0], "num_up_osds": 1}' ;;
esac
"""


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)


class Directories(Scratch):
    def test_only_what_was_made_here_is_removed(self):
        directory = self.scratch / "a" / "cluster"
        ceph_cluster.make_empty(directory)
        (directory / "mon").mkdir()
        (directory / "mon" / "store").write_text("old")
        (directory / "link").symlink_to(self.scratch)
        ceph_cluster.make_empty(directory)
        self.assertEqual([path.name for path in directory.iterdir()], [ceph_cluster.MADE_HERE])
        self.assertTrue(self.scratch.exists())

    def test_a_directory_of_another_is_refused_as_it_is(self):
        mine = self.scratch / "mine"
        mine.mkdir()
        (mine / "notes.txt").write_text("mine")
        for make in (lambda: ceph_cluster.make_empty(mine), lambda: ceph_cluster.Cluster(mine)):
            with self.assertRaisesRegex(SystemExit, "notes.txt"):
                make()
            self.assertEqual((mine / "notes.txt").read_text(), "mine")

    def test_an_empty_directory_is_taken(self):
        ceph_cluster.make_empty(self.scratch)
        ceph_cluster.make_empty(self.scratch)


class Ceph(Scratch):
    def setUp(self):
        super().setUp()
        programs = self.scratch / "programs"
        programs.mkdir()
        for name in ("ceph", "ceph-mon", "ceph-osd", "ceph-authtool", "monmaptool", "rados"):
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        self.processes = self.scratch / "processes"
        self.directory = self.scratch / "cluster"
        self.addCleanup(self.kill_daemons)
        self.environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", PROCESSES=str(self.processes))

    def start(self, *arguments):
        command = [sys.executable, SCRIPTS / "ceph", *arguments, "--directory", self.directory]
        # Ctrl-C goes to a group of processes: the terminal's. A shell starts what is to run in the background with the signal
        # ignored, and a gate may run so; a terminal does not.
        script = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(script.stdout.close)
        return script

    def daemons(self):
        return [int(line) for line in self.processes.read_text().split()] if self.processes.exists() else []

    def kill_daemons(self):
        """Ends what a failed test has left."""
        for process in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def wait_for_daemons(self, count):
        end = time.monotonic() + 30
        while len(self.daemons()) < count:
            self.assertLess(time.monotonic(), end, "the daemons do not start")
            time.sleep(0.02)

    def assert_stopped(self, count):
        self.assertEqual(len(self.daemons()), count)
        for process in self.daemons():
            with self.assertRaises(ProcessLookupError, msg="a daemon lives on"):
                os.kill(process, signal.SIGKILL)

    def interrupted(self, script, number):
        """Sends a signal as Ctrl-C or `kill` does, and returns what the script printed."""
        os.killpg(script.pid, number) if number == signal.SIGINT else script.send_signal(number)
        return script.communicate(timeout=30)[0]

    def test_daemons_end_with_the_script(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.processes.unlink(missing_ok=True)
            script = self.start("up", "--native")
            self.wait_for_daemons(2)
            self.assertIn("up: ", script.stdout.readline())
            self.interrupted(script, number)
            self.assert_stopped(2)

    def test_daemons_end_with_a_script_that_is_interrupted_while_it_makes_the_cluster(self):
        pathlib.Path(f"{self.processes}.slow").touch()
        for command in (("up", "--native"), ("read", "--rivals", "leveldb", "rocksdb")):
            self.processes.unlink(missing_ok=True)
            script = self.start(*command)
            self.wait_for_daemons(1)
            time.sleep(0.3)
            self.interrupted(script, signal.SIGINT)
            self.assert_stopped(1)

    def test_daemons_end_when_a_cluster_cannot_be_made(self):
        pathlib.Path(f"{self.processes}.broken").touch()
        script = self.start("read", "--rivals", "leveldb", "rocksdb")
        printed = script.communicate(timeout=30)[0]
        self.assertNotEqual(script.returncode, 0, printed)
        self.assert_stopped(1)

    def test_measurements_take_no_option_that_changes_what_is_measured(self):
        for command in (("read", "--native"), ("drop", "--native"), ("read", "--store", "filestore"), ("up", "--rounds", "1")):
            script = self.start(*command)
            printed = script.communicate(timeout=30)[0]
            self.assertEqual(script.returncode, 2, printed)
            self.assertIn("unrecognized arguments", printed)


class Check(Scratch):
    """scripts/check in a copy of the adapter whose sources of LevelDB are a broken program."""

    def setUp(self):
        super().setUp()
        if not shutil.which("g++") or not pathlib.Path("/usr/include/gmock/gmock.h").exists():
            self.skipTest("needs g++, libgtest-dev and libgmock-dev")
        self.adapter = self.scratch / "adapters" / "leveldb"
        shutil.copytree(SCRIPTS, self.adapter / "scripts")
        leveldb = self.adapter / "build" / "others" / "leveldb-1.23"
        for name in ("issues/issue178_test.cc", "util/testutil.cc", "db/c_test.c"):
            (leveldb / name).parent.mkdir(parents=True, exist_ok=True)
            (leveldb / name).write_text("this is no program\n")
        self.programs = self.scratch / "programs"
        self.programs.mkdir()

    def check(self, parts):
        environment = dict(os.environ, PARTS=parts, PATH=f"{self.programs}:{os.environ['PATH']}")
        return subprocess.run(["bash", self.adapter / "scripts" / "check"], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def test_what_does_not_compile_is_a_failure(self):
        for part in ("issues", "c_test"):
            done = self.check(part)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("FAILED", done.stdout)
            self.assertNotIn("skipped", done.stdout)

    def test_what_the_machine_lacks_is_skipped(self):
        compiler = self.programs / "g++"
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *-lgtest*) exit 1 ;; esac\nexec {shutil.which("g++")} "$@"\n')
        compiler.chmod(0o755)
        done = self.check("issues")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("issues: skipped: needs libgtest-dev", done.stdout)

    def test_an_unknown_part_is_a_failure(self):
        self.assertEqual(self.check("isues").returncode, 1)


if __name__ == "__main__":
    unittest.main()
