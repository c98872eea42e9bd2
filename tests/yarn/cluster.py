"""YARN on this machine: a ResourceManager and a NodeManager, and the processes of the applications that they run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_node import free_ports
from tests.support.waiting import eventually
from tests.yarn.hadoop_jars import hadoop_jars

_SERVER = "org.apache.hadoop.yarn.server"
_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
# Hadoop's web applications create classes at run time, which Java 17 allows only so.
_OPENS = [
    word
    for package in ("lang", "util", "io", "net")
    for word in ("--add-opens", f"java.base/java.{package}=ALL-UNNAMED")
]
_LOGGING = """log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
_SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}


class YarnCluster:
    """One ResourceManager and one NodeManager on 127.0.0.1; they and their containers end with the block.

    ``configuration``: the folder for ``HADOOP_CONF_DIR``. The default file system is the machine's own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.configuration = folder / "conf"
        self._processes: list[GuardedProcess] = []

    def __enter__(self) -> Self:
        self._configure()
        try:
            log = self._start("resourcemanager.ResourceManager")
            _await_line(log, "Transitioned to active state", self._processes[-1])
            self._start("nodemanager.NodeManager")
            _await_line(log, "from NEW to RUNNING", self._processes[-1])  # the ResourceManager's line for a node
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        # A NodeManager that is killed leaves its containers, which have sessions of their own.
        for pid in self.processes(""):
            os.kill(pid, signal.SIGKILL)

    def processes(self, main_class: str) -> list[int]:
        """Ids of the JVMs in containers whose command contains ``main_class``."""
        found = []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = command.read_bytes().split(b"\0")
            except OSError:  # it has just ended
                continue
            text = b" ".join(words).decode(errors="replace")
            if words[0].endswith(b"/java") and str(self._folder / "logs") in text and main_class in text:
                found.append(int(command.parent.name))
        return found

    def logs(self) -> str:
        """The ends of the logs of all containers."""
        return "\n".join(f"{log}:\n{tail(log)}" for log in sorted(self._folder.glob("logs/*/*/std*")))

    def _configure(self) -> None:
        local = self._folder / "local"
        ports = zip(_ADDRESSES, free_ports(len(_ADDRESSES)), strict=True)
        resource_manager = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{port}" for name, port in ports}
        node_manager = {
            **{
                f"yarn.nodemanager.{name}": "127.0.0.1:0" for name in ("address", "localizer.address", "webapp.address")
            },
            "yarn.nodemanager.local-dirs": str(local),
            "yarn.nodemanager.log-dirs": str(self._folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "8192",
            "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "256",
        }
        self.configuration.mkdir(parents=True)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self._folder / "tmp")}
        files = {"core-site": core, "yarn-site": resource_manager | node_manager, "capacity-scheduler": _SCHEDULER}
        for name, settings in files.items():
            lines = [f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items()]
            text = "\n".join(["<configuration>", *lines, "</configuration>", ""])
            self.configuration.joinpath(f"{name}.xml").write_text(text)

    def _start(self, main_class: str) -> Path:
        log = self._folder / f"{main_class}.log"
        properties = self.configuration / "log4j.properties"
        properties.write_text(_LOGGING)
        path = f"{self.configuration}:{hadoop_jars()}/*"
        java = find_java()
        environment = {**os.environ, "JAVA_HOME": str(java.resolve().parents[1])}  # containers start this one
        command = [str(java), "-Xmx400m", *_OPENS, "-cp", path, f"{_SERVER}.{main_class}"]
        self._processes.append(GuardedProcess(command, log=log, cwd=self._folder, env=environment))
        return log


def _await_line(log: Path, line: str, process: GuardedProcess) -> None:
    def said() -> bool:
        return line in log.read_text(errors="replace")

    eventually(lambda: said() or process.poll() is not None, f"no {line!r} in {log.name}")
    assert said(), tail(log)
