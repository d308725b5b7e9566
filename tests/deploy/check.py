#!/usr/bin/env python3
"""Checks everything under deploy/ by every means short of the platforms themselves.

systemd units with systemd-analyze, the Dockerfile with hadolint, kustomize directories with a real kustomize, the Helm chart with
Go's templates and sprig (no helm binary can be had), all Kubernetes objects against the published schemas, scrape examples with
promtool, configurations with the exporter itself. Called by scripts/test_deploy.sh, which fetches the tools.

usage: check.py EXPORTER KUSTOMIZE PROMTOOL RENDER_CHART NODE_DIRECTORY
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/redis-lock-exporter"
# The oldest that the chart says it fits, and a new one.
KUBERNETES = ["1.25", "1.33"]
# systemd-analyze's score from 0 (locked in) to 10 (exposed), times ten.
EXPOSURE = "16"

problems = []


def problem(what):
    problems.append(what)
    print(f"  PROBLEM: {what}")


def run(*command, **options):
    """What a command prints; a problem where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        problem(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def systemd():
    with tempfile.TemporaryDirectory() as directory:
        unit = pathlib.Path(directory, "redis_lock_exporter.service")
        text = (DEPLOY / "systemd/redis_lock_exporter.service").read_text()
        # The binary need not be installed for the unit to be right.
        unit.write_text(text.replace("/usr/bin/redis_lock_exporter", str(EXPORTER)))
        run("systemd-analyze", "verify", "--man=no", unit)
        report = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", unit)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", report)
    print(f"  systemd: exposure {score[1] if score else 'unknown'} of 10, at most {int(EXPOSURE) / 10} is allowed")


def docker():
    run("hadolint", DEPLOY / "docker/Dockerfile")
    compose = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and not (DEPLOY / "docker" / source).exists():
                problem(f"compose.yaml: {name} mounts {source}, which does not exist")
            if not source.startswith(".") and source not in compose["volumes"]:
                problem(f"compose.yaml: {name} mounts {source}, which is not among the volumes")
        for port in service.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                problem(f"compose.yaml: {name} is published beyond the loopback interface: {port}")
    with (DEPLOY / "docker/users.acl").open() as acl:
        documented = documented_commands()
        user = next(line for line in acl if line.startswith("user exporter "))
        if set(re.findall(r"\+\S+", user)) != documented:
            problem(f"users.acl: the exporter's commands are not those of docs/operations.md: {sorted(documented)}")
    print(f"  docker: {len(compose['services'])} services; the image was not built (no container engine)")


def documented_commands():
    single = (ROOT / "docs/operations.md").read_text().split("### Single server", 1)[1]
    return set(re.findall(r"\+\S+", single.split("```")[1]))


def objects(text):
    return [loaded for loaded in yaml.safe_load_all(text) if loaded]


def validate(where, manifests):
    """Published schemas, and what they cannot say."""
    operators = [manifest for manifest in manifests if manifest["apiVersion"].startswith("monitoring.coreos.com/")]
    for manifest in manifests:
        name = f"{where}: {manifest['kind']} {manifest['metadata']['name']}"
        if manifest not in operators:
            for version in KUBERNETES:
                try:
                    kubernetes_validate.validate(manifest, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    problem(f"{name}, Kubernetes {version}: {error.message}")
        careful(name, manifest)
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]
    for twice in {name for name in names if names.count(name) > 1}:
        problem(f"{where}: {twice} is there twice")
    selectors_fit(where, manifests)
    if operators:
        run("node", NODE / "operator_objects.mjs", input=yaml.safe_dump_all(operators), cwd=NODE)
    print(f"  {where}: {len(manifests)} objects, {len(operators)} of them the Prometheus Operator's")


def careful(name, manifest):
    if manifest["kind"] in ("NetworkPolicy", "PodDisruptionBudget"):
        selector = manifest["spec"].get("podSelector") or manifest["spec"].get("selector")
        if not selector:
            problem(f"{name} selects every pod of its namespace")
    if manifest["kind"] not in ("Deployment", "DaemonSet"):
        return
    pod = manifest["spec"]["template"]["spec"]
    if pod.get("automountServiceAccountToken") is not False and "exporter" in manifest["metadata"]["name"]:
        problem(f"{name} has a token for the Kubernetes API")
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        if "redis_lock_exporter" not in container["image"]:
            continue
        security = container.get("securityContext", {})
        if security.get("readOnlyRootFilesystem") is not True or security.get("allowPrivilegeEscalation") is not False:
            problem(f"{name}: the container is not locked in")
        if security.get("capabilities") != {"drop": ["ALL"]}:
            problem(f"{name}: the container keeps capabilities")
        if "livenessProbe" not in container or "requests" not in container.get("resources", {}):
            problem(f"{name}: the container has no liveness probe or no resource requests")
        for argument in container["args"]:
            if argument.split("=")[0] not in FLAGS:
                problem(f"{name}: the exporter has no flag {argument.split('=')[0]}")
        for mount in container["volumeMounts"]:
            if mount["name"] not in volumes:
                problem(f"{name}: no volume {mount['name']}")


def selectors_fit(where, manifests):
    """Every selector of a workload, a Service, a policy or a monitor finds pods that are there."""
    pods = [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests
        if manifest["kind"] in ("Deployment", "DaemonSet")
    ]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        wanted = {
            "Service": lambda: spec["selector"],
            "NetworkPolicy": lambda: spec["podSelector"].get("matchLabels"),
            "PodDisruptionBudget": lambda: spec["selector"].get("matchLabels"),
            "PodMonitor": lambda: spec["selector"].get("matchLabels"),
        }.get(manifest["kind"])
        labels = wanted() if wanted else None
        if labels and "sidecar" not in manifest["metadata"]["name"]:
            if not any(labels.items() <= pod.items() for pod in pods):
                problem(f"{where}: {manifest['kind']} {manifest['metadata']['name']} finds no pod: {labels}")


def configurations(where, manifests):
    """Every embedded configuration is one that the exporter takes."""
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and "config.yaml" in manifest["data"]:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(manifest["data"]["config.yaml"])
                file.flush()
                run(EXPORTER, "check", "--config.file", file.name)


def kustomize():
    for directory in ("keyspace", "logs", "monitoring", "everything"):
        manifests = objects(run(KUSTOMIZE, "build", DEPLOY / "kubernetes" / directory))
        if directory != "monitoring":
            configurations(f"kustomize {directory}", manifests)
            validate(f"kustomize {directory}", manifests)
    # The sidecar is a component: it needs somebody's workload to be added to.
    with tempfile.TemporaryDirectory(dir=DEPLOY / "kubernetes") as directory:
        directory = pathlib.Path(directory)
        (directory / "kustomization.yaml").write_text(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [app.yaml]\ncomponents: [../sidecar]\n"
        )
        shutil.copy(ROOT / "tests/deploy/app.yaml", directory / "app.yaml")
        manifests = objects(run(KUSTOMIZE, "build", directory))
    validate("kustomize sidecar", manifests)
    app = {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == "Deployment"}
    names = {name: [c["name"] for c in m["spec"]["template"]["spec"]["containers"]] for name, m in app.items()}
    if names != {"app": ["redis-lock-exporter", "app"], "other": ["other"]} and names != {"app": ["app", "redis-lock-exporter"], "other": ["other"]}:
        problem(f"kustomize sidecar: containers are {names}")


def helm():
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for error in validator.iter_errors(defaults):
        problem(f"values.yaml: {error.message}")
    undescribed = set(defaults) ^ (set(schema["properties"]) - {"global"})
    if undescribed:
        problem(f"values.yaml and values.schema.json differ in {undescribed}")
    bad = [{"keyspce": {}}, {"keyspace": {"replicas": "two"}}, {"keyspace": {"replica": 1}}, {"service": {"port": 0}}, {"image": {}}]
    for values in bad:
        if validator.is_valid(values):
            problem(f"values.schema.json lets {values} through")
    rendered = 0
    for case in sorted((ROOT / "tests/deploy/values").glob("*.yaml")):
        given = yaml.safe_load(case.read_text())
        for error in validator.iter_errors(merged(defaults, given)):
            problem(f"{case.name}: {error.message}")
        manifests = objects(run(RENDERER, CHART, "demo", "locks", case))
        configurations(f"helm {case.stem}", manifests)
        validate(f"helm {case.stem}", manifests)
        rendered += 1
        for manifest in manifests:
            if manifest["kind"] == "PrometheusRule":
                same = yaml.safe_load((ROOT / "alerts/redis_lock.rules.yml").read_text())["groups"]
                if manifest["spec"]["groups"] != same:
                    problem("helm: the rules in the chart are not the rules of alerts/")
    if rendered < 3:
        problem("helm: too few cases in tests/deploy/values")


def merged(defaults, given):
    """As Helm does it before it looks at the schema."""
    both = {**defaults, **given}
    for key in defaults.keys() & given.keys():
        if isinstance(defaults[key], dict) and isinstance(given[key], dict):
            both[key] = merged(defaults[key], given[key])
    return both


def examples():
    for file in sorted((DEPLOY / "prometheus").glob("*.yml")) + [DEPLOY / "docker/prometheus.yml"]:
        run(PROMTOOL, "check", "config", "--syntax-only", file)
    for file in (DEPLOY / "systemd/config.yaml", DEPLOY / "docker/config.yaml"):
        run(EXPORTER, "check", "--config.file", file)
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    if chart["appVersion"] != version:
        problem(f"Chart.yaml: appVersion {chart['appVersion']}, the program is {version}")
    for file in (DEPLOY / "kubernetes").glob("*/*.yaml"):
        for tag in re.findall(r"redis_lock_exporter:(\S+)", file.read_text()):
            if tag != version:
                problem(f"{file.relative_to(ROOT)}: image {tag}, the program is {version}")


if __name__ == "__main__":
    EXPORTER, KUSTOMIZE, PROMTOOL, RENDERER, NODE = map(pathlib.Path, sys.argv[1:6])
    FLAGS = set(re.findall(r"--[a-z][\w.-]*", run(EXPORTER, "run", "--help")))
    os.environ.pop("XDG_CONFIG_HOME", None)
    for part in (systemd, docker, kustomize, helm, examples):
        part()
    print(f"{len(problems)} problems")
    sys.exit(bool(problems))
