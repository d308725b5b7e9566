"""Installs the chart with real Helm into a simulated Kubernetes API that only records objects.

The package registries have no helm binary, but helm-sdkpy contains Helm's Go packages as a shared library. It has no
`helm template`, so this module installs the chart against a small server on the loopback interface. The server knows the kinds of
objects in charts, starts empty, and stores what it receives. Helm merges the values, checks them against values.schema.json, and renders.

Called by check.py; scripts/test_deploy.sh fetches the library.
"""

import contextlib
import ctypes
import http.server
import json
import os
import pathlib
import threading

import yaml

# group/version: kind, name in URLs. Objects that the chart may create, Helm's record of a release
# (secrets), and a namespace.
KINDS = {
    "v1": {"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "ServiceAccount": "serviceaccounts"},
    "apps/v1": {"DaemonSet": "daemonsets", "Deployment": "deployments"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "monitoring.coreos.com/v1": {
        "PodMonitor": "podmonitors",
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
}


class Answers(http.server.BaseHTTPRequestHandler):
    """The part of the Kubernetes API that an installation needs."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.split("?")[0].strip("/")
        if path == "version":
            self.answer(200, {"major": "1", "minor": self.server.minor, "gitVersion": f"v1.{self.server.minor}.0"})
        elif path == "api":
            self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "apis":
            groups = [name.split("/") for name in KINDS if "/" in name]
            self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(*pair) for pair in groups]})
        elif path.removeprefix("apis/").removeprefix("api/") in KINDS:
            self.answer(200, resources(path.removeprefix("apis/").removeprefix("api/")))
        elif path.rsplit("/", 1)[-1] in (name for kinds in KINDS.values() for name in kinds.values()):
            self.answer(200, {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []})
        else:
            self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

    def take(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        # Helm stores its record of the release as a secret, which is not JSON.
        if kind == "application/json":
            self.server.objects.append(json.loads(body))
        self.reply(201, kind, body)

    do_POST = do_PUT = take

    def answer(self, status, content):
        self.reply(status, "application/json", json.dumps(content).encode())

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def group(name, version):
    versions = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [versions], "preferredVersion": versions}


def resources(group_version):
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    known = [
        {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
        for kind, name in KINDS[group_version].items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": known}


class Refused(Exception):
    """Why Helm did not install the chart."""


class Helm:
    def __init__(self, library: pathlib.Path):
        # Helm would log every file of the chart that is a link.
        with quiet():
            self.library = ctypes.CDLL(str(library))
        self.library.helm_sdkpy_last_error.restype = ctypes.c_char_p

    def install(self, chart, release, namespace, values, minor="33"):
        """Returns the objects that `helm install RELEASE CHART --namespace NAMESPACE --values ...` creates."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        server.objects, server.minor = [], minor
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
        }
        options = {"server_side_apply": "false", "disable_openapi_validation": True, "wait": False}
        try:
            handle = ctypes.c_uint64()
            self.check(
                self.library.helm_sdkpy_config_create(
                    namespace.encode(), yaml.safe_dump(access).encode(), None, b"{}", ctypes.byref(handle)
                )
            )
            result = ctypes.c_char_p()
            with quiet():
                status = self.library.helm_sdkpy_install(
                    handle,
                    release.encode(),
                    str(chart).encode(),
                    json.dumps(values).encode(),
                    b"",
                    json.dumps(options).encode(),
                    ctypes.byref(result),
                )
            self.check(status)
            self.library.helm_sdkpy_config_destroy(handle)
        finally:
            server.shutdown()
            server.server_close()
        return server.objects

    def check(self, status):
        if status != 0:
            raise Refused(self.library.helm_sdkpy_last_error().decode())


@contextlib.contextmanager
def quiet():
    """Silences the library, which logs every link in the chart to standard error."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
