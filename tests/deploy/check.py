#!/usr/bin/env python3
"""Checks everything under deploy/ as far as possible without the real platforms.

systemd units with systemd-analyze, the Dockerfile with hadolint, kustomize directories with a real kustomize, the Helm chart with a real
Helm (helm.py), all Kubernetes objects against the published schemas, scrape examples with promtool, configurations with the exporter
itself. Called by scripts/test_deploy.sh, which fetches the tools.

usage: check.py EXPORTER KUSTOMIZE PROMTOOL HELM_LIBRARY NODE_DIRECTORY
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import jsonschema
import kubernetes_validate
import yaml

import helm

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/redis-lock-exporter"
# The oldest Kubernetes version that the chart supports, and a recent one.
KUBERNETES = ["1.25", "1.33"]
# The score of systemd-analyze from 0 (isolated) to 10 (exposed), times ten.
EXPOSURE = "16"

problems = []


def problem(what):
    problems.append(what)
    print(f"  PROBLEM: {what}")


def run(*command, **options):
    """Returns the output of a command; records a problem if the command fails."""
    options = {"stderr": subprocess.PIPE, **options}
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        problem(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def systemd():
    with tempfile.TemporaryDirectory() as directory:
        unit, socket = (pathlib.Path(directory, f"redis_lock_exporter.{kind}") for kind in ("service", "socket"))
        text = (DEPLOY / "systemd" / unit.name).read_text()
        # The unit can be correct without the binary being installed.
        unit.write_text(text.replace("/usr/bin/redis_lock_exporter", str(EXPORTER)))
        shutil.copy(DEPLOY / "systemd" / socket.name, socket)
        # systemd-analyze prints unknown settings but succeeds.
        for complaint in run("systemd-analyze", "verify", "--man=no", unit, socket, stderr=subprocess.STDOUT).splitlines():
            problem(f"systemd-analyze verify: {complaint}")
        report = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", unit)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", report)
    print(f"  systemd: exposure {score[1] if score else 'unknown'} of 10, at most {int(EXPOSURE) / 10} is allowed")
    stated = re.search(r"gives it ([\d.]+) of 10", (ROOT / "docs/deployment.md").read_text())
    if not score or not stated or stated[1] != score[1]:
        problem(f"docs/deployment.md states an exposure of {stated and stated[1]}, it is {score and score[1]}")


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
        documented = documented_commands("Single server") | documented_commands("Newer servers")
        user = next(line for line in acl if line.startswith("user exporter "))
        if set(re.findall(r"\+\S+", user)) != documented:
            problem(f"users.acl: the exporter's commands are not those of docs/operations.md: {sorted(documented)}")
    for image in [service.get("image", "") for service in compose["services"].values() if "build" not in service]:
        if not re.search(r":\S*\d", image):
            problem(f"compose.yaml: {image} has no version")
    for name, service in compose["services"].items():
        if service.get("cap_drop") != ["ALL"] or "no-new-privileges:true" not in service.get("security_opt", []):
            problem(f"compose.yaml: {name} is not locked in")
    exporter = compose["services"]["exporter"]
    if not exporter["read_only"]:
        problem("compose.yaml: the exporter can write to its root")
    secrets = {f"/run/secrets/{name}": DEPLOY / "docker" / compose["secrets"][name]["file"] for name in exporter["secrets"]}
    together(secrets)
    print(f"  docker: {len(compose['services'])} services; the image was not built (no container engine)")


def together(secrets):
    """Runs Redis and the exporter of the compose file with its files, without containers."""
    with tempfile.TemporaryDirectory() as directory:
        at = pathlib.Path(directory)
        # The installed Redis may be older than the one of the compose file.
        users = (DEPLOY / "docker/users.acl").read_text()
        for command in documented_commands("Newer servers"):
            users = users.replace(f" {command}", "")
        (at / "users.acl").write_text(users)
        redis = at / "redis.sock"
        config = (DEPLOY / "docker/config.yaml").read_text().replace("redis://redis:6379/0", f"unix://{redis}")
        for inside, outside in secrets.items():
            config = config.replace(inside, str(outside))
        (at / "config.yaml").write_text(config.replace("/var/log/app", str(at)))
        server = ["redis-server", "--port", "0", "--unixsocket", redis, "--aclfile", at / "users.acl", "--save", "", "--dir", at]
        listen = at / "exporter.sock"
        flags = ["--config.file", at / "config.yaml", "--state.dir", at / "state", "--web.listen-address", f"unix://{listen}"]
        started = []
        try:
            for command in (server, [EXPORTER, *flags]):
                words = [str(word) for word in command]
                with (at / "log").open("a") as log:
                    started.append(subprocess.Popen(words, stdout=log, stderr=log))
            deadline = time.monotonic() + 60
            metrics = ""
            while "\nredis_lock_exporter_redis_up 1\n" not in metrics and time.monotonic() < deadline:
                time.sleep(0.1)
                asked = ["curl", "--silent", "--unix-socket", listen, "http://exporter/metrics"]
                metrics = subprocess.run([str(word) for word in asked], capture_output=True, text=True, check=False).stdout
            if "\nredis_lock_exporter_redis_up 1\n" not in metrics:
                problem(f"compose: the exporter does not reach Redis with its files: {(at / 'log').read_text()[-2000:]}")
            refused_commands = re.findall(r"^redis_lock_exporter_redis_permission_denied.* 1$", metrics, re.MULTILINE)
            if refused_commands:
                problem(f"compose: users.acl refuses {refused_commands}")
        finally:
            for process in started:
                process.kill()
                process.wait()


def documented_commands(section):
    text = (ROOT / "docs/operations.md").read_text().split(f"### {section}\n", 1)[1]
    return set(re.findall(r"\+\S+", text.split("```")[1]))


def objects(text):
    return [loaded for loaded in yaml.safe_load_all(text) if loaded]


def validate(where, manifests):
    """Checks objects against published schemas and against rules that schemas cannot express."""
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
        problem(f"{where}: {twice} is listed twice")
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
    """Checks that every selector of a workload, Service, policy or monitor matches existing pods."""
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
            "ServiceMonitor": lambda: spec["selector"].get("matchLabels"),
        }.get(manifest["kind"])
        labels = wanted() if wanted else None
        if labels and "sidecar" not in manifest["metadata"]["name"]:
            if not any(labels.items() <= pod.items() for pod in pods):
                problem(f"{where}: {manifest['kind']} {manifest['metadata']['name']} finds no pod: {labels}")


def configurations(where, manifests):
    """Checks that the exporter accepts every embedded configuration."""
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
        for manifest in manifests:
            # Sidecars run next to the programs.
            if manifest["metadata"]["name"] == "redis-lock-exporter-sidecar" and manifest["spec"].get("namespaceSelector") != {"any": True}:
                problem(f"kustomize {directory}: the sidecars' PodMonitor looks in its own namespace only")
    # The sidecar is a component: it must be added to a workload.
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


def chart(values, **options):
    """Returns the objects that Helm renders from the chart with these values, by kind and the rest of the name."""
    made = HELM.install(CHART, "demo", "locks", values, **options)
    return {(manifest["kind"], manifest["metadata"]["name"].removeprefix("demo-redis-lock-exporter")): manifest for manifest in made}


def refused(values, why, **options):
    try:
        chart(values, **options)
        problem(f"helm takes {values} {options or ''}")
    except helm.Refused as reason:
        if why not in str(reason):
            problem(f"helm refuses {values} {options or ''}, but not because of {why!r}: {reason}")


def helm_chart():
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    undescribed = set(yaml.safe_load((CHART / "values.yaml").read_text())) ^ (set(schema["properties"]) - {"global"})
    if undescribed:
        problem(f"values.yaml and values.schema.json differ in {undescribed}")
    refused({"keyspce": {}}, "keyspce")
    refused({"keyspace": {"replicas": "two"}}, "/keyspace/replicas")
    refused({"keyspace": {"replica": 1}}, "'replica'")
    refused({"service": {"port": 0}}, "/service/port")
    refused({"image": {"repository": ""}}, "/image/repository")
    refused({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "choose one")
    refused({}, "incompatible with Kubernetes", minor="24")
    cases = {}
    for case in sorted((ROOT / "tests/deploy/values").glob("*.yaml")):
        cases[case.stem] = made = chart(yaml.safe_load(case.read_text()))
        manifests = list(made.values())
        configurations(f"helm {case.stem}", manifests)
        validate(f"helm {case.stem}", manifests)
    helm_items(cases)


def helm_items(cases):
    """Checks every feature of the chart with the values that enable it (tests/deploy/values)."""
    defaults, everything, logs_only, services = (cases[name] for name in ("defaults", "everything", "logs-only", "services"))

    def promise(what, kept):
        if not kept:
            problem(f"helm: {what}")

    def pod(made, kind, name):
        return made[kind, name]["spec"]["template"]["spec"]

    def container(made, kind, name):
        return pod(made, kind, name)["containers"][0]

    def volume(made, kind, name, wanted):
        return next((entry for entry in pod(made, kind, name)["volumes"] if entry["name"] == wanted), None)

    deployment, daemonset = ("Deployment", "-keyspace"), ("DaemonSet", "-logs")
    kinds = {kind for kind, _ in defaults}
    promise("the keyspace side alone is the default", deployment in defaults and daemonset not in defaults)
    promise("nothing of the operator by default", not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule"})
    promise("the log side alone", daemonset in logs_only and deployment not in logs_only and ("Service", "") not in logs_only)
    promise("both sides", deployment in everything and daemonset in everything)

    keyspace, logs = container(everything, *deployment), container(everything, *daemonset)
    promise("an extra argument reaches the keyspace side", "--log.level=debug" in keyspace["args"])
    promise("and only that one", "--log.level=debug" not in logs["args"])
    promise("an extra variable", {"name": "TZ", "value": "UTC"} in keyspace.get("env", []))
    promise("an extra volume", volume(everything, *daemonset, "journal") == {"name": "journal", "hostPath": {"path": "/run/log/journal"}})
    promise("is mounted", {"name": "journal", "mountPath": "/run/log/journal", "readOnly": True} in logs["volumeMounts"])
    secrets = {entry["secret"]["secretName"] for entry in pod(everything, *deployment)["volumes"] if "secret" in entry}
    promise("existing secrets: password, TLS to Redis, web configuration", secrets == {"redis", "rtls", "web"})
    promise("the web configuration on both sides", all("--web.config.file=/etc/redis_lock_exporter_web/web.yaml" in side["args"] for side in (keyspace, logs)))
    promise("no secret is made", not any(kind == "Secret" for made in cases.values() for kind, _ in made))
    promise("a pull secret", pod(logs_only, *daemonset)["imagePullSecrets"] == [{"name": "regcred"}])
    promise("another registry", container(logs_only, *daemonset)["image"] == "registry.example.com/redis_lock_exporter:1.2.3")
    existing = volume(services, *deployment, "config")["configMap"]["name"]
    promise("an existing ConfigMap", existing == "mine" and ("ConfigMap", "-keyspace") not in services)

    asks = {name: probe["httpGet"]["path"] for name, probe in container(defaults, *deployment).items() if name.endswith("Probe")}
    promise(f"probes ask the exporter: {asks}", asks == {"startupProbe": "/-/healthy", "livenessProbe": "/-/healthy", "readinessProbe": "/-/ready"})
    asks = {name: probe["exec"]["command"] for name, probe in keyspace.items() if name.endswith("Probe")}
    own = ["/redis_lock_exporter", "healthcheck"]
    promise(f"behind a web configuration the exporter asks itself: {asks}", asks == dict.fromkeys(("startupProbe", "livenessProbe", "readinessProbe"), own))

    budget = defaults["PodDisruptionBudget", "-keyspace"]["spec"]
    promise("a budget that never blocks a drain", budget["maxUnavailable"] == 1)
    promise("no budget when it is not wanted", ("PodDisruptionBudget", "-keyspace") not in services)
    policy = services["NetworkPolicy", "-keyspace"]["spec"]
    promise("the policy lets out to Redis' ports", [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [53, 53, 7000])
    policy = chart({"networkPolicy": {"redisPorts": []}})["NetworkPolicy", "-keyspace"]["spec"]
    promise("without ports it does not let out to all of them", [rule.get("ports") for rule in policy["egress"]] == [policy["egress"][0]["ports"]])
    redis, dns = {"ipBlock": {"cidr": "10.1.2.3/32"}}, {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    policy = chart({"networkPolicy": {"redisTo": [redis], "dnsTo": [dns]}})["NetworkPolicy", "-keyspace"]["spec"]
    promise("names and Redis can be narrowed", [rule["to"] for rule in policy["egress"]] == [[dns], [redis]])
    memory = container(defaults, *deployment)["resources"]["limits"]["memory"]
    promise("memory for as many locks as are tracked: 194 MB a million", memory == "512Mi")
    promise("the log side goes nowhere", everything["NetworkPolicy", "-logs"]["spec"]["egress"] == [])
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    promise("who may scrape", logs_only["NetworkPolicy", "-logs"]["spec"]["ingress"][0]["from"] == [selector])
    promise("no policy when it is not wanted", not any(kind == "NetworkPolicy" for kind, _ in cases["least"]))

    state = volume(everything, *daemonset, "state")["hostPath"]
    promise("counters of the log side outlive the pod", state == {"path": "/var/lib/redis_lock_exporter", "type": "DirectoryOrCreate"})
    promise("and are where the exporter saves them", {"name": "state", "mountPath": "/var/lib/redis_lock_exporter"} in logs["volumeMounts"])

    endpoint = everything["PodMonitor", ""]["spec"]["podMetricsEndpoints"][0]
    promise("the PodMonitor's label and TLS", everything["PodMonitor", ""]["metadata"]["labels"]["release"] == "kps" and endpoint["tlsConfig"])
    promise("one monitor at a time", ("ServiceMonitor", "") not in everything and ("PodMonitor", "") not in services)
    monitor = services["ServiceMonitor", ""]
    promise("the ServiceMonitor's namespace", monitor["metadata"]["namespace"] == "monitoring")
    endpoint = monitor["spec"]["endpoints"][0]
    credentials = {"username": {"name": "scrape", "key": "user"}, "password": {"name": "scrape", "key": "password"}}
    promise("over TLS with a password", endpoint["scheme"] == "https" and endpoint["basicAuth"] == credentials)
    found = [name for (kind, name), made in services.items() if kind == "Service" and fits(monitor["spec"]["selector"], made)]
    promise(f"the ServiceMonitor finds both sides: {found}", sorted(found) == ["", "-logs"])
    for name in found:
        ports = [port["name"] for port in services["Service", name]["spec"]["ports"]]
        promise(f"at their port: {ports}", endpoint["port"] in ports)

    groups = yaml.safe_load((ROOT / "alerts/redis_lock.rules.yml").read_text())["groups"]
    promise("the rules are those of alerts/", everything["PrometheusRule", ""]["spec"]["groups"] == groups)
    boards = everything["ConfigMap", "-dashboards"]
    promise("dashboards have the label of Grafana's sidecar", boards["metadata"]["labels"]["grafana_dashboard"] == "1")
    same = {f"redis-lock-{file.stem}.json": json.loads(file.read_text()) for file in (ROOT / "dashboards").glob("*.json")}
    promise("and are those of dashboards/", {name: json.loads(text) for name, text in boards["data"].items()} == same)


def fits(selector, manifest):
    return selector["matchLabels"].items() <= manifest["metadata"]["labels"].items()


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
    EXPORTER, KUSTOMIZE, PROMTOOL, LIBRARY, NODE = map(pathlib.Path, sys.argv[1:6])
    HELM = helm.Helm(LIBRARY)
    FLAGS = set(re.findall(r"--[a-z][\w.-]*", run(EXPORTER, "run", "--help")))
    os.environ.pop("XDG_CONFIG_HOME", None)
    for part in (systemd, docker, kustomize, helm_chart, examples):
        part()
    print(f"{len(problems)} problems")
    sys.exit(bool(problems))
