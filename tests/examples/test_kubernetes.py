"""The files for Kubernetes, as far as they can be checked without a cluster: by the schemas of its API, and by the pod
of the driver, which ``spark-submit`` has a stand-in for the API server create.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kubernetes_validate
import pytest
import yaml

from tests.examples.conftest import EXAMPLES

pytestmark = [pytest.mark.examples, pytest.mark.timeout(600)]

FOLDER = EXAMPLES / "kubernetes"
VERSION = kubernetes_validate.latest_version()


class ApiServer(BaseHTTPRequestHandler):
    """Answers with what it was sent, as an API server does, and keeps it."""

    created: list[dict]

    def do_POST(self):
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.created.append(sent)
        sent["metadata"] |= {"uid": "1", "namespace": "spark"}
        answer = json.dumps(sent).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PUT(self):
        self.do_POST()

    def do_PATCH(self):
        self.do_POST()

    def log_message(self, *_):
        pass


@pytest.fixture
def api_server() -> Iterator[ThreadingHTTPServer]:
    ApiServer.created = []
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_objects_have_the_schema_of_the_api():
    objects = list(yaml.safe_load_all((FOLDER / "access.yaml").read_text()))
    assert [each["kind"] for each in objects] == ["ServiceAccount", "Role", "RoleBinding"]
    for each in objects:
        kubernetes_validate.validate(each, VERSION, strict=True)


@pytest.mark.jvm
def test_the_drivers_pod_has_image_secret_and_account(api_server, shell, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.kubernetes.submission.waitAppCompletion false\n")
    submit = subprocess.run(
        [FOLDER / "submit.sh"],
        env=shell | {
            "KUBERNETES": f"http://127.0.0.1:{api_server.server_port}",
            "IMAGE": "registry.example/orders:1",
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
        },
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    (pod,) = ([each for each in ApiServer.created if each["kind"] == "Pod"]) or pytest.fail(submit.stdout)
    kubernetes_validate.validate(pod, VERSION)
    assert pod["spec"]["serviceAccountName"] == "kafka-writer"
    (driver,) = pod["spec"]["containers"]
    assert driver["image"] == "registry.example/orders:1"
    assert "/etc/kafka-client" in {mount["mountPath"] for mount in driver["volumeMounts"]}
    assert {"secretName": "kafka-client"}.items() <= next(
        volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume
    ).items()
    assert "local:///opt/jobs/batch_to_kafka.py" in driver["args"]
    assert submit.returncode == 0, submit.stdout
