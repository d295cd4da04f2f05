#!/usr/bin/env python3
"""Renders the chart with Helm's own engine for every file in ci/, and holds what comes out against the schemas of
Kubernetes. Run it through check.sh, which installs what it needs."""

import pathlib
import re
import sys
import warnings

import yaml
from helm_python import Chart, HelmRenderError

warnings.filterwarnings("ignore")
import kubernetes_validate  # noqa: E402

HERE = pathlib.Path(__file__).parent
CHART = HERE / "longshore"
VERSIONS = ["1.25.0", "1.29.0", "1.33.0", "1.37.0"]
# Kinds of others, whose schemas are not Kubernetes' own.
FOREIGN = {"BackendConfig", "HTTPRoute", "ScaledObject", "ServiceMonitor", "PodMonitor", "PrometheusRule"}

passed = failed = 0


def held(name, problem=None):
    global passed, failed
    if problem is None:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {name}: {problem}")


class UniqueKeys(yaml.SafeLoader):
    """Rejects keys that occur twice, of which a reader may take either."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = {key for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.YAMLError(f"keys that occur twice: {repeated}")
        return super().construct_mapping(node, deep)


def documents(rendered):
    """What a rendered chart consists of, by file."""
    items = rendered.items() if isinstance(rendered, dict) else [("all", rendered)]
    for name, text in items:
        if name.endswith("NOTES.txt"):
            continue
        for document in yaml.load_all(text, UniqueKeys):
            if document:
                yield name, document


def check_documents(what, rendered):
    """All documents are valid for all versions."""
    for name, document in rendered:
        kind = document["kind"]
        if kind in FOREIGN:
            has = all(document.get(key) for key in ("apiVersion", "metadata", "spec"))
            held(f"{what} {name}", None if has else "lacks apiVersion, metadata or spec")
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
                held(f"{what} {name} {version}")
            except Exception as error:  # noqa: BLE001
                held(f"{what} {name} {version}", error)


def check_values(chart, file):
    values = yaml.safe_load(file.read_text()) or {}
    rendered = list(documents(chart.render(values=values, name="tools", namespace="mcp")))
    kinds = sorted(document["kind"] for _, document in rendered)
    print(f"{file.name}: {', '.join(kinds)}")
    check_documents(file.name, rendered)
    held(f"{file.name}: selectors", selectors(rendered))
    held(f"{file.name}: configuration", configuration(rendered))
    held(f"{file.name}: scaling", scaling(rendered))


def scaling(rendered):
    """What KEDA asks for has labels that a monitor of pods gives, and one of services too."""
    for _, document in rendered:
        if document["kind"] != "ScaledObject":
            continue
        query = document["spec"]["triggers"][0]["metadata"]["query"]
        pods = re.search(r'\{namespace="mcp",pod=~"([^"]*)"\}', query)
        if not pods:
            return query
        name = next(d for _, d in rendered if d["kind"] == "Deployment")["metadata"]["name"]
        for pod, ours in [(f"{name}-6d4cf56db6-abcde", True), (f"{name}-two-6d4cf56db6-abcde", False)]:
            if bool(re.fullmatch(pods[1], pod)) != ours:
                return f"{query} and {pod}"
    return None


def selectors(rendered):
    """Services, budgets and policies must select the pods of the deployment."""
    by_kind = {}
    for _, document in rendered:
        by_kind.setdefault(document["kind"], []).append(document)
    labels = by_kind["Deployment"][0]["spec"]["template"]["metadata"]["labels"]
    wanted = [service["spec"]["selector"] for service in by_kind["Service"]]
    wanted += [d["spec"]["selector"]["matchLabels"] for d in by_kind.get("PodDisruptionBudget", [])]
    wanted += [d["spec"]["podSelector"]["matchLabels"] for d in by_kind.get("NetworkPolicy", [])]
    for selector in wanted:
        for key, value in selector.items():
            if labels.get(key) != value:
                return f"{key}={value} selects no pod: {labels}"
    return None


def configuration(rendered):
    """The file in the ConfigMap listens where the container says it does."""
    maps = [d for _, d in rendered if d["kind"] == "ConfigMap" and "longshore.yaml" in d["data"]]
    pod = next(d for _, d in rendered if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    ports = {p["name"]: p["containerPort"] for p in pod["containers"][0]["ports"]}
    config = yaml.safe_load(maps[0]["data"]["longshore.yaml"])
    if config["http"]["port"] != ports["http"]:
        return f"http.port is {config['http']['port']}, the container's {ports['http']}"
    if "metrics" in ports and config["http"]["admin"]["port"] != ports["metrics"]:
        return f"http.admin.port is {config['http']['admin']['port']}, the container's port {ports['metrics']}"
    if config["drain"]["grace_seconds"] > pod["terminationGracePeriodSeconds"]:
        return f"drain.grace_seconds is {config['drain']}, the pod's {pod['terminationGracePeriodSeconds']}"
    return None


# Names that are numbers or words of YAML, if nothing says that they are strings.
WORDS = {
    "nameOverride": "123",
    "fullnameOverride": "1e3",
    "serviceAccount": {"name": "7"},
    "priorityClassName": "1000",
    "seal": {"existingSecret": "12", "secretKey": "1"},
    "redis": {"enabled": True, "existingSecret": "34", "secretKey": "2"},
    "service": {"appProtocol": "5"},
    "ingress": {
        "enabled": True,
        "className": "6",
        "hosts": [{"host": "1.2", "paths": [{"path": "/a: b #c", "pathType": "Exact"}]}],
    },
    "networkPolicy": {"enabled": True, "ingressFrom": [{"podSelector": {}}]},
}


def check_words(chart):
    for name in ["123", "true", "1e3"]:
        rendered = list(documents(chart.render(values=WORDS, name=name, namespace="mcp")))
        check_documents(f"a release called {name}", rendered)


# Values that repeat keys of the chart.
OWN = {"app.kubernetes.io/version": "7", "helm.sh/chart": "mine", "team": "a"}
REPEATED = {
    "podLabels": {**OWN, "app.kubernetes.io/name": "longshore"},
    "metrics": {
        "podMonitor": {"enabled": True, "labels": OWN},
        "prometheusRule": {"enabled": True, "labels": OWN},
    },
    "dashboards": {"enabled": True, "labels": OWN},
}


def check_repeated(chart):
    """Labels of the values override those of the chart."""
    rendered = list(documents(chart.render(values=REPEATED, name="tools", namespace="mcp")))
    check_documents("repeated labels", rendered)
    kinds = {"Deployment", "PodMonitor", "PrometheusRule"}
    for _, document in rendered:
        pod = document["spec"]["template"] if document["kind"] == "Deployment" else document
        labels = pod["metadata"]["labels"]
        if document["kind"] in kinds or document["metadata"]["name"].endswith("-dashboard"):
            has = all(labels.get(key) == value for key, value in OWN.items())
            held(f"{document['kind']}: repeated labels", None if has else labels)


def check_demo(chart):
    """The demo tools are what the program serves without a configuration; they are not added to one."""
    for values in [{}, {"config": {"sources": [{"name": "a"}]}}]:
        rendered = chart.render(values=values, name="tools", namespace="mcp")
        file = next(d for _, d in documents(rendered) if d["kind"] == "ConfigMap")["data"]
        config = yaml.safe_load(file["longshore.yaml"])
        held(f"{values}: toolsets", None if "toolsets" not in config else config["toolsets"])


REFUSED = {
    "an unknown value": {"replicas": 3},
    "a port that is none": {"port": 70000},
    "two autoscalers": {"autoscaling": {"enabled": True}, "keda": {"enabled": True}},
    "an autoscaler without a target": {
        "autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0}
    },
    "pods that the Service does not select": {"podLabels": {"app.kubernetes.io/name": "other"}},
    "another checksum of the configuration": {"podAnnotations": {"checksum/config": "a"}},
    "redis without an address": {"redis": {"enabled": True}},
    "a route without a gateway": {"gateway": {"httpRoute": {"enabled": True}}},
    "a monitor without metrics": {
        "admin": {"enabled": False},
        "metrics": {"serviceMonitor": {"enabled": True}},
    },
    "less time than the drain takes": {"terminationGracePeriodSeconds": 5},
    "a drain that is longer than the time": {"config": {"drain": {"grace_seconds": 60}}},
    "a drain that is text, which the server rejects": {"config": {"drain": {"grace_seconds": "20"}}},
    "no drain": {"config": {"drain": None}},
    "a port that the Service does not use": {"config": {"http": {"port": 9000}}},
    "no port at all": {"config": {"transport": "stdio"}},
    "an address that only the pod reaches": {"config": {"http": {"host": "127.0.0.1"}}},
    "a socket instead of the port": {"config": {"http": {"unix_socket": "/tmp/mcp.sock"}}},
    "probes without the certificate that clients need": {
        "admin": {"enabled": False},
        "config": {"http": {"tls": {"certificate": "a", "key": "b", "client_ca": "c"}}},
    },
    "an autoscaler by CPU time without requests": {
        "autoscaling": {"enabled": True},
        "resources": {"requests": {"cpu": None}},
    },
    "one with a container without requests": {
        "autoscaling": {"enabled": True},
        "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
    },
}


def check_stopping(chart):
    """The server takes the time to stop that the pod has, unless it is told otherwise."""
    for values, expected in [
        ({"terminationGracePeriodSeconds": 120}, 120),
        ({"config": {"drain": {"grace_seconds": 25, "delay_seconds": 3}}}, 25),
        ({"config": {"drain": {"grace_seconds": 25, "delay_seconds": "${DELAY}"}}}, 25),
        ({"config": {"http": {"port": 8080}}}, 30),
        ({"config": {"http": None}}, 30),
    ]:
        rendered = list(documents(chart.render(values=values, name="tools", namespace="mcp")))
        held(f"{values}: configuration", configuration(rendered))
        file = next(d for _, d in rendered if d["kind"] == "ConfigMap")["data"]["longshore.yaml"]
        drain = yaml.safe_load(file)["drain"]
        held(f"{values}: drain", None if drain["grace_seconds"] == expected else drain)


def check_budget(chart):
    """A budget has the limit that is set; an empty one and null count as not set."""
    for values, expected in [
        ({"minAvailable": None}, {"maxUnavailable": 1}),
        ({"minAvailable": 0, "maxUnavailable": None}, {"minAvailable": 0}),
    ]:
        rendered = chart.render(values={"podDisruptionBudget": values}, name="tools", namespace="mcp")
        spec = next(d for _, d in documents(rendered) if d["kind"] == "PodDisruptionBudget")["spec"]
        del spec["selector"]
        held(f"{values}: budget", None if spec == expected else spec)


# Everything is on, so that every value can have an effect.
ALL_ON = {
    "seal": {"existingSecret": ""},
    "redis": {"enabled": True, "url": "redis://redis:6379"},
    "service": {"type": "NodePort"},
    "networkPolicy": {"enabled": True},
    "ingress": {"enabled": True},
    "gateway": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}},
    "dashboards": {"enabled": True},
}
AUTOSCALING = {
    "autoscaling": {"enabled": True},
    "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
}
KEDA = {"keda": {"enabled": True}, "metrics": {"podMonitor": {"enabled": True}}}
# Values that the general change below does not suit.
CHANGED = {
    "port": 8081,
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "redis.url": "redis://other",
    "service.type": "ClusterIP",
    "service.externalTrafficPolicy": "Local",
    "service.ipFamilyPolicy": "SingleStack",
    "service.loadBalancerSourceRanges": ["10.0.0.0/8"],
    "command": ["a"],
    "args": [],
    "dnsPolicy": "Default",
    "keda.prometheusAddress": "http://other",
    "keda.threshold": 7,
    "podDisruptionBudget.unhealthyPodEvictionPolicy": "AlwaysAllow",
    "ingress.hosts": [{"host": "other", "paths": [{"path": "/", "pathType": "Prefix"}]}],
    "gateway.httpRoute.hostnames": ["other"],
    "gateway.httpRoute.timeout": "1s",
    "metrics.serviceMonitor.interval": "7s",
    "metrics.serviceMonitor.scrapeTimeout": "7s",
    "metrics.podMonitor.interval": "7s",
    "metrics.podMonitor.scrapeTimeout": "7s",
    "strategy.type": "Recreate",
    "image.variant": "runtime",
    "podDisruptionBudget.minAvailable": 1,
    "serviceAccount.name": "other",
    "terminationGracePeriodSeconds": 40,
    "configFiles": {"a.txt": "b"},
}
# Of these, one excludes another.
EXCLUSIVE = {"keda.enabled", "autoscaling.enabled", "metrics.podMonitor.enabled", "metrics.serviceMonitor.enabled"}
# What a value needs to have an effect.
NEEDS = {
    "redis.secretKey": {"redis": {"existingSecret": "a"}},
    "replicaCount": {"autoscaling": {"enabled": False}},
}


def merged(one, other):
    both = dict(one)
    for key, value in other.items():
        are_objects = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if are_objects else value
    return both


def leaves(values, path=()):
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def check_effects(chart):
    """Every value of values.yaml changes what is rendered."""
    def rendered(values):
        try:
            return str(chart.render(values=values, name="tools", namespace="mcp"))
        except HelmRenderError as error:
            return str(error)

    # A generated key would differ each time.
    base = merged(ALL_ON, {"seal": {"generate": False}})
    for path, value in leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
        name = ".".join(path)
        if name in EXCLUSIVE:
            continue
        if name in CHANGED:
            changes = [CHANGED[name]]
        elif isinstance(value, bool):
            changes = [True, False]
        elif isinstance(value, int):
            changes = [value + 1]
        elif isinstance(value, list):
            changes = [[*value, {"name": "other", "resources": {"requests": {"cpu": "1"}}}]]
        elif isinstance(value, dict):
            changes = [{"other": "a"}]
        else:
            changes = ["other"]
        has_effect = False
        for scaler in (AUTOSCALING, KEDA):
            before = merged(merged(base, scaler), NEEDS.get(name, {}))
            for change in changes:
                for key in reversed(path):
                    change = {key: change}
                has_effect |= rendered(before) != rendered(merged(before, change))
        held(f"{name}: effect", None if has_effect else "changes nothing")


def check_dependency(chart):
    """A chart that has this one as a dependency may pass values of its own."""
    try:
        chart.validate_schema({"enabled": True, "global": {"team": "a"}})
        chart.render(values={"enabled": True, "global": {"team": "a"}}, name="tools", namespace="mcp")
        held("a dependency")
    except Exception as error:  # noqa: BLE001
        held("a dependency", error)


def check_refusals(chart):
    for name, values in REFUSED.items():
        try:
            chart.validate_schema(values)
            chart.render(values=values, name="tools", namespace="mcp")
            held(name, "was accepted")
        except Exception:  # noqa: BLE001
            held(name)


def check_plain_manifests():
    """What lies in deploy/ is of Kubernetes too, in part."""
    for file in sorted((HERE.parent / "deploy").rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if not isinstance(document, dict) or "kind" not in document:
                continue
            api = document.get("apiVersion", "")
            foreign = "kustomize" in api or "knative" in api or document["kind"] in FOREIGN
            if foreign:
                continue
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                    held(f"{file.name} {version}")
                except Exception as error:  # noqa: BLE001
                    held(f"{file} {version}", error)


with Chart.load(CHART) as loaded:
    for values_file in sorted((CHART / "ci").glob("*-values.yaml")):
        check_values(loaded, values_file)
    check_words(loaded)
    check_repeated(loaded)
    check_demo(loaded)
    check_stopping(loaded)
    check_budget(loaded)
    check_effects(loaded)
    check_dependency(loaded)
    check_refusals(loaded)
check_plain_manifests()
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
