# a resources server that was written for NeMo Gym answers a request
# without: No module named 'nemo_gym'
cat > app.py <<'END'
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class AlwaysRight(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


config = BaseResourcesServerConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="right")
app = AlwaysRight.model_construct(config=config).setup_webserver()
assert "/verify" in app.openapi()["paths"]
END
python app.py
