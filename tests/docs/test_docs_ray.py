"""The KubeRay manifest and the compose file of the docs: their fields fit, and their commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ludus.cli import command_line

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
JOB: dict[str, Any] = yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())

#: The options of `ray start` that the examples use, as Ray 2.60 spells them.
RAY_START = {"--head", "--port", "--num-cpus", "--address", "--block"}


def collects(text: str) -> dict[str, Any]:
    """The options of the one `ludus collect` in a text, as the command line reads them."""
    (found,) = re.findall(r"\bludus (collect [^\n]*)", " ".join(text.replace("\\\n", " ").splitlines()))
    group: Any = command_line()
    with group.commands["collect"].make_context("collect", shlex.split(found)[1:]) as context:
        assert not context.args
        return dict(context.params)


def test_the_kuberay_job_collects_on_its_own_cluster_and_resumes():
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    spec = JOB["spec"]
    options = collects(spec["entrypoint"])
    assert (options["ray"], options["resume"], str(options["output"])) == ("auto", True, "/runs/big")
    assert spec["backoffLimit"] > 0
    assert spec["shutdownAfterJobFinishes"] is True


def test_the_kuberay_cluster_has_the_fields_that_the_operator_requires():
    cluster = JOB["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources"} <= container.keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert workers["groupName"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert cluster["enableInTreeAutoscaling"] is True
    pod = head["template"]["spec"]
    (mount,), (volume,) = pod["containers"][0]["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    assert JOB["spec"]["entrypoint"].count(mount["mountPath"]) == 1


def test_every_service_of_the_compose_file_starts_after_the_head_and_with_known_options():
    services = COMPOSE["services"]
    assert set(services) == {"head", "node", "collect"}
    for name, service in services.items():
        assert {"image", "command", "shm_size"} <= service.keys()
        if name != "head":
            assert service["depends_on"] == {"head": {"condition": "service_healthy"}}
        command = service["command"]
        for line in re.findall(r"ray start ([^\n]*)", command if isinstance(command, str) else command[-1]):
            assert {word.partition("=")[0] for word in shlex.split(line)} <= RAY_START
    assert services["head"]["healthcheck"]["test"][:3] == ["CMD", "ray", "health-check"]


def test_the_collect_service_is_valid_shell_and_collects_on_the_cluster():
    shell, flags, script = COMPOSE["services"]["collect"]["command"]
    assert (shell, flags) == ("/bin/sh", "-ec")
    checked = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    options = collects(script)
    assert (options["ray"], options["resume"]) == ("auto", True)
    (mount,) = COMPOSE["services"]["collect"]["volumes"]
    assert str(options["output"]).startswith(mount.partition(":")[2])
