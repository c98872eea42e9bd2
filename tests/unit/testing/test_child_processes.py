import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from tests.support.waiting import DEADLINE_S, eventually

SLEEP = ["sleep", "300"]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return is_unreaped(pid)


def is_unreaped(pid):
    """Dead, and only kept in the table of processes until init asks for its exit code, which may take seconds."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


@pytest.fixture
def guarded(tmp_path):
    started = []

    def start(*command, **options):
        started.append(GuardedProcess(command or SLEEP, log=tmp_path / "log", **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def parent(tmp_path):
    """A process that starts ``command`` guarded, prints its pid and waits for ever."""
    started = []

    def start(command, scratch):
        program = textwrap.dedent(f"""
            import time
            from pathlib import Path
            from spark_kafka_sink.testing.child_processes import GuardedProcess
            process = GuardedProcess({command!r}, log=Path({str(tmp_path / "log")!r}), scratch=Path({str(scratch)!r}))
            print(process.pid, flush=True)
            time.sleep(300)
        """)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_child_and_its_scratch_folder_go_when_the_parent_is_killed(parent, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "data").write_text("x")
    process, child = parent(SLEEP, scratch)

    process.kill()  # not waited for: a parent that nobody has reaped yet counts as dead too

    eventually(lambda: is_gone(child))
    eventually(lambda: not scratch.exists())


def test_the_child_s_own_children_go_as_well(parent, tmp_path):
    pid_file = tmp_path / "grandchild"
    process, child = parent(["sh", "-c", f"sleep 300 & echo $! > {pid_file}; wait"], tmp_path / "none")
    eventually(lambda: pid_file.exists() and pid_file.read_text().strip())
    grandchild = int(pid_file.read_text())

    process.kill()

    eventually(lambda: is_gone(child))
    eventually(lambda: is_gone(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child to its guard")
def test_a_child_goes_when_its_guard_is_killed(guarded):
    process = guarded()
    os.kill(process._guard.pid, signal.SIGKILL)
    process._guard.wait(DEADLINE_S)
    eventually(lambda: is_gone(process.pid))


def test_a_child_outlives_the_thread_that_started_it(guarded):
    started = []
    thread = threading.Thread(target=lambda: started.append(guarded()))
    thread.start()
    thread.join()
    time.sleep(0.5)
    assert started[0].poll() is None


def test_stop_kills_what_does_not_listen(guarded, tmp_path):
    process = guarded("sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done")
    eventually(lambda: "deaf" in tail(tmp_path / "log"))
    assert process.stop(timeout_s=0.3) == 128 + signal.SIGKILL


def test_a_stopped_child_can_be_killed(guarded):
    process = guarded()
    process.send_signal(signal.SIGSTOP)
    assert process.kill() == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_is_named(guarded):
    with pytest.raises(OSError, match=r"no-such-command did not start:\n(.|\n)*FileNotFoundError"):
        guarded("no-such-command")
