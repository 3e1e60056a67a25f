import subprocess
import sys

import pytest

from router.telemetry import tracing


def built(is_on=True, **environment):
    return tracing.build_tracer(is_on=is_on, version="1", environment=environment)


def test_off_means_nothing_not_even_an_import():
    program = (
        "import sys, router.app.worker, router.telemetry.tracing as tracing;"
        "assert tracing.build_tracer(is_on=False, version='1', environment={}) is None;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "environment", [{"OTEL_SDK_DISABLED": " True"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_the_variables_of_the_sdk_switch_it_off_too(environment):
    assert built(**environment) is None


async def test_on_means_a_tracer():
    tracer = built(
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_BSP_MAX_QUEUE_SIZE=" 4096 ",
    )
    assert tracer is not None
    await tracer.close()


async def test_the_protocol_of_traces_comes_before_that_of_everything():
    tracer = built(
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf", OTEL_EXPORTER_OTLP_PROTOCOL="grpc"
    )
    assert tracer is not None
    await tracer.close()


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]
)
@pytest.mark.parametrize("protocol", ["grpc", "http/json"])
def test_a_protocol_that_is_not_spoken_stops_the_start(name, protocol):
    with pytest.raises(ValueError, match=f"^{name} is '{protocol}'.*4318"):
        built(**{name: protocol})


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "grpc://collector", "http://", "http://c:port", "http://[::1"]
)
def test_an_endpoint_that_is_no_url_stops_the_start(name, endpoint):
    with pytest.raises(ValueError, match=f"^{name} is no URL"):
        built(**{name: endpoint})


def test_a_bad_endpoints_credential_is_not_shown():
    with pytest.raises(ValueError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT") as caught:
        built(OTEL_EXPORTER_OTLP_ENDPOINT="http://user:s3cret")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("port", "warnings"), [(4317, 1), (4318, 0)])
async def test_the_port_for_grpc_is_warned_of(caplog, port, warnings):
    tracer = built(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://collector:{port}")
    assert tracer is not None
    await tracer.close()
    assert len(caplog.records) == warnings


@pytest.mark.parametrize("size", ["0", "-1", "many", "1_000", "²"])
def test_a_queue_of_no_size_stops_the_start(size):
    with pytest.raises(ValueError, match=r"^OTEL_BSP_MAX_QUEUE_SIZE is "):
        built(OTEL_BSP_MAX_QUEUE_SIZE=size)


def test_batches_larger_than_the_queue_stop_the_start():
    with pytest.raises(ValueError, match=r"^the OTEL_\* variables: max_export_batch_size must"):
        built(OTEL_BSP_MAX_QUEUE_SIZE="10")


@pytest.mark.parametrize("package", ["opentelemetry.exporter", "opentelemetry.sdk"])
def test_a_missing_package_stops_the_start_and_names_the_extra(monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "router.telemetry.spans", raising=False)

    class NotInstalled:
        def find_spec(self, name, path=None, target=None):
            if name.startswith(package):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    with pytest.raises(ValueError, match=r"sandbox-router\[otel\].*set tracing to false"):
        built()
