"""Serves a plan as a Ray Serve deployment: many replicas on many machines, below one URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Self

from ludus.collection.engines.ray_code import Code
from ludus.collection.engines.setup import WorkerSetup
from ludus.errors import UserError, missing_extra
from ludus.folder import WorkerNeeds
from ludus.http.guard import LOOPBACK
from ludus.http.listening import address, bind
from ludus.runtime.ray_cluster import LOCAL, connected
from ludus.serve.plan import Plan
from ludus.serve.ray_replica import IN_COPY, Registry, Replica
from ludus.serve.site import check, environment_of

#: Requests that a replica takes at once. Ray Serve's default of 5 would queue rollouts that only wait for a model.
REQUESTS_AT_ONCE = 4096

#: Seconds that a replica has to close its sessions.
STOP_SECONDS = 60.0

APPLICATION = "ludus"


class RayServing:
    """Serves a plan on a Ray cluster while it is entered. `plan.workers` is the number of replicas.

    async with RayServing(Plan.of(["mcqa"], "local", workers=2), "local") as serving:
        print(serving.url_of(serving.plan.servers[0]))
    """

    def __init__(self, plan: Plan, address: str, port: int = 0, say: Callable[[str], None] = print) -> None:
        self.plan, self.port = plan, port
        self._address, self._say = address, say
        self._stack = contextlib.AsyncExitStack()

    def url_of(self, server: Any) -> str:
        """The URL of a server of the plan."""
        return f"{address(self.plan.host, self.port)}/{server.name}"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        plan, token = self.plan, self.plan.token()
        check(plan)
        if self._address != LOCAL and plan.host in LOOPBACK:
            self._say("replicas listen on loopback, so all must be on one machine: for more add --host and a token")
        with bind("the servers", plan.host, self.port, "--port; 0 takes a free one", "--host") as probe:
            self.port = probe.getsockname()[1]
        environments = [environment_of(server, plan) for server in plan.servers if server.environment is not None]
        needs = WorkerNeeds.of_all(environment.worker for environment in environments)
        code = Code(WorkerSetup(environments), shipped=self._address != LOCAL)
        self._stack.enter_context(code)
        described = plan.model_dump()
        for server, entry in zip(plan.servers, described["servers"], strict=True):
            folder = str(environment_of(server, plan).folder) if server.environment is not None else ""
            if folder in code.folders:
                entry["environment"] = IN_COPY + code.folders[folder]
        runtime = code.runtime_environment({}, needs.packages)
        cpus = needs.cpus * plan.workers + 2  # two for Ray Serve itself
        own = {name: amount * plan.workers for name, amount in needs.resources.items()}
        connection = connected(self._address, runtime, self._say, cpus=cpus, resources=own)
        ray = await self._stack.enter_async_context(connection)
        try:
            from ray import serve
        except ImportError as error:
            raise missing_extra("ray[serve]", "ray") from error
        registry = ray.remote(num_cpus=0, max_concurrency=1000)(Registry).remote()
        deployment = serve.deployment(
            serve.ingress()(Replica),
            name=APPLICATION,
            num_replicas=plan.workers,
            max_ongoing_requests=REQUESTS_AT_ONCE,
            graceful_shutdown_timeout_s=STOP_SECONDS,
            ray_actor_options={
                "num_cpus": needs.cpus,
                "num_gpus": needs.gpus,
                "memory": needs.memory_bytes,
                "resources": needs.resources,
            },
        )
        application = deployment.bind(described, token, registry)
        self._stack.push_async_callback(asyncio.to_thread, serve.shutdown)
        starting = asyncio.create_task(asyncio.to_thread(self._run, serve, application))
        waited = 0
        while not (await asyncio.wait({starting}, timeout=10.0))[0]:
            waited += 10
            self._say(f"waiting for {plan.workers} replicas with {needs} each: {waited} s so far")
        try:
            starting.result()
        except RuntimeError as error:
            raise UserError(f"Ray Serve did not start the servers: {str(error).splitlines()[0]:.300}") from error

    def _run(self, serve: Any, application: Any) -> None:
        serve.start(http_options={"host": self.plan.host, "port": self.port})
        serve.run(application, name=APPLICATION, route_prefix="/")
