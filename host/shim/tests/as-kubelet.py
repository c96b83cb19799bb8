#!/usr/bin/env python3
"""Says a pod of Kubernetes as kubelet says it to a runtime through CRI, for crictl.

usage: as-kubelet.py NAME DIRECTORY [ADDRESS] < MANIFEST

MANIFEST is a Pod or a Deployment in JSON, and NAME is to be the pod's. Without ADDRESS, DIRECTORY gets NAME.json, and the
pod's runtime class is printed, which has to be there, and whose handler has the same name. With ADDRESS, which is the pod's,
it gets NAME-CONTAINER.json for each container, and their names are printed. Their logs are to be in DIRECTORY/../logs.
"""

import json
import pathlib
import sys

# What kubelet hides from containers that are not privileged, and does not let them write to.
MASKED = ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
          "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
# Each container has processes of its own (CONTAINER).
NAMESPACES = {"pid": 1}


def memory_bytes(container: dict) -> int:
    return int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20


def shares(container: dict) -> int:
    cores = container["resources"].get("requests", {}).get("cpu", "0m")
    return max(2, int(cores.removesuffix("m")) * 1024 // 1000)


def variable(one: dict, fields: dict[str, str]) -> dict[str, str]:
    if "valueFrom" not in one:
        return {"key": one["name"], "value": one.get("value", "")}
    return {"key": one["name"], "value": fields[one["valueFrom"]["fieldRef"]["fieldPath"]]}


def security(context: dict) -> dict:
    capabilities = context.get("capabilities", {})
    return {
        "namespace_options": NAMESPACES,
        "masked_paths": MASKED,
        "readonly_paths": READ_ONLY,
        "capabilities": {"add_capabilities": capabilities.get("add", []), "drop_capabilities": capabilities.get("drop", [])},
        "no_new_privs": not context.get("allowPrivilegeEscalation", True),
        "readonly_rootfs": context.get("readOnlyRootFilesystem", False),
        # 0 is the runtime's default, 1 none.
        "seccomp": {"profile_type": 0 if context.get("seccompProfile", {}).get("type") == "RuntimeDefault" else 1},
    }


def said_of_pod(name: str, spec: dict, annotations: dict, logs: pathlib.Path) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "hostname": name,
        "annotations": annotations,
        "log_directory": str(logs),
        "linux": {
            "resources": {"memory_limit_in_bytes": sum(map(memory_bytes, spec["containers"]))},
            "security_context": {"namespace_options": NAMESPACES},
        },
    }


def said_of_container(name: str, container: dict, fields: dict[str, str]) -> dict:
    return {
        "metadata": {"name": container["name"]},
        "image": {"image": container["image"]},
        "command": container.get("command", []),
        "args": container.get("args", []),
        "envs": [variable(one, fields) for one in container.get("env", [])],
        "log_path": f"{name}.log",
        "linux": {
            "resources": {"memory_limit_in_bytes": memory_bytes(container), "cpu_shares": shares(container)},
            "security_context": security(container.get("securityContext", {})),
        },
    }


def main() -> None:
    name, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    manifest = json.load(sys.stdin)
    pod = manifest["spec"]["template"] if manifest["kind"] == "Deployment" else manifest
    spec = pod["spec"]
    if spec.get("volumes") or spec.get("initContainers"):
        sys.exit("as-kubelet.py: it knows neither volumes nor init containers")
    if "runtimeClassName" not in spec:
        sys.exit("as-kubelet.py: the pod has no runtime class")
    if len(sys.argv) == 3:
        said = said_of_pod(name, spec, pod["metadata"].get("annotations", {}), directory.parent / "logs")
        (directory / f"{name}.json").write_text(json.dumps(said))
        print(spec["runtimeClassName"])
        return
    fields = {"metadata.name": name, "metadata.namespace": "default", "status.podIP": sys.argv[3], "status.hostIP": "127.0.0.1"}
    for container in spec["containers"]:
        full_name = f"{name}-{container['name']}"
        (directory / f"{full_name}.json").write_text(json.dumps(said_of_container(full_name, container, fields)))
        print(container["name"])


main()
