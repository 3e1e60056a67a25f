"""Closed schemas of the custom resources that the chart and the examples use: exactly the fields we write.

Kubernetes' own schemas come from kubernetes-validate; those of extensions are in no package that Python can install, so
the parts we use are written down here. A misspelt or misplaced field fails.
"""

from __future__ import annotations

from typing import Any

import jsonschema

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
GATEWAY_DURATION: Schema = {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
GO_DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(h|m|s|ms))+$"}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def _closed(*required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


TARGET = _closed(
    "group", "kind", "name", group={"type": "string"}, kind=TEXT, name=TEXT, sectionName=TEXT
)

HTTP_ROUTE = _closed(
    "parentRefs",
    "rules",
    parentRefs=_list(_closed("name", name=TEXT, namespace=TEXT, sectionName=TEXT)),
    hostnames=_list(TEXT),
    rules=_list(
        _closed(
            "backendRefs",
            matches=_list(
                _closed(
                    "path",
                    path=_closed(
                        "type",
                        "value",
                        type={"enum": ["PathPrefix", "Exact"]},
                        value={"type": "string", "pattern": "^/"},
                    ),
                )
            ),
            filters=_list(
                _closed(
                    "type",
                    "requestHeaderModifier",
                    type={"enum": ["RequestHeaderModifier"]},
                    requestHeaderModifier=_closed("remove", remove=_list(TEXT)),
                )
            ),
            timeouts=_closed(request=GATEWAY_DURATION, backendRequest=GATEWAY_DURATION),
            backendRefs=_list(_closed("name", "port", name=TEXT, port=PORT)),
        )
    ),
)

GATEWAY = _closed(
    "gatewayClassName",
    "listeners",
    gatewayClassName=TEXT,
    listeners=_list(
        _closed(
            "name",
            "port",
            "protocol",
            name=TEXT,
            port=PORT,
            protocol={"enum": ["HTTP", "HTTPS"]},
            hostname=TEXT,
            tls=_closed(
                "mode",
                "certificateRefs",
                mode={"enum": ["Terminate"]},
                certificateRefs=_list(_closed("name", name=TEXT)),
            ),
            allowedRoutes=_closed(
                "namespaces",
                namespaces=_closed(
                    "from",
                    **{
                        "from": {"enum": ["Same", "All", "Selector"]},
                        "selector": _closed("matchLabels", matchLabels=LABELS),
                    },
                ),
            ),
        )
    ),
)

BACKEND_TLS_POLICY = _closed(
    "targetRefs",
    "validation",
    targetRefs=_list(TARGET),
    validation=_closed(
        "hostname",
        hostname=TEXT,
        wellKnownCACertificates={"enum": ["System"]},
        caCertificateRefs=_list(
            _closed("group", "kind", "name", group={"type": "string"}, kind=TEXT, name=TEXT)
        ),
    ),
)

RELABELINGS = _list(
    _closed(
        sourceLabels=_list(TEXT),
        separator={"type": "string"},
        targetLabel=TEXT,
        regex={"type": "string"},
        modulus=COUNT,
        replacement={"type": "string"},
        action={
            "enum": ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep"]
        },
    )
)

SERVICE_MONITOR = _closed(
    "selector",
    "endpoints",
    selector=_closed("matchLabels", matchLabels=LABELS),
    namespaceSelector=_closed("matchNames", matchNames=_list(TEXT)),
    endpoints=_list(
        _closed(
            "port",
            port=TEXT,
            path={"type": "string", "pattern": "^/"},
            interval=GO_DURATION,
            scrapeTimeout=GO_DURATION,
            relabelings=RELABELINGS,
            metricRelabelings=RELABELINGS,
        )
    ),
)

PROMETHEUS_RULE = _closed(
    "groups",
    groups=_list(
        _closed(
            "name",
            "rules",
            name=TEXT,
            interval=GO_DURATION,
            rules=_list(
                {
                    "oneOf": [
                        _closed("record", "expr", record=TEXT, expr=TEXT),
                        _closed(
                            "alert",
                            "expr",
                            **{
                                "alert": TEXT,
                                "expr": TEXT,
                                "for": GO_DURATION,
                                "labels": LABELS,
                                "annotations": LABELS,
                            },
                        ),
                    ]
                }
            ),
        )
    ),
)

CERTIFICATE = _closed(
    "secretName",
    "issuerRef",
    "dnsNames",
    secretName=TEXT,
    duration=GO_DURATION,
    renewBefore=GO_DURATION,
    privateKey=_closed(
        algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
        size=COUNT,
        rotationPolicy={"enum": ["Always", "Never"]},
    ),
    usages=_list({"enum": ["server auth", "client auth", "digital signature"]}),
    dnsNames=_list(TEXT),
    issuerRef=_closed("name", name=TEXT, kind=TEXT, group=TEXT),
)

CLIENT_TRAFFIC_POLICY = _closed(
    "targetRefs",
    targetRefs=_list(TARGET),
    clientIPDetection=_closed(
        xForwardedFor={
            "oneOf": [
                _closed("numTrustedHops", numTrustedHops=COUNT),
                _closed("trustedCIDRs", trustedCIDRs=_list(TEXT)),
            ]
        }
    ),
    path=_closed(
        escapedSlashesAction={
            "enum": ["KeepUnchanged", "RejectRequest", "UnescapeAndForward", "UnescapeAndRedirect"]
        },
        disableMergeSlashes={"type": "boolean"},
    ),
    timeout=_closed(
        http=_closed(idleTimeout=GATEWAY_DURATION, requestReceivedTimeout=GATEWAY_DURATION)
    ),
)

BACKEND_TRAFFIC_POLICY = _closed(
    "targetRefs",
    targetRefs=_list(TARGET),
    timeout=_closed(
        tcp=_closed(connectTimeout=GATEWAY_DURATION),
        http=_closed(
            connectionIdleTimeout=GATEWAY_DURATION,
            maxConnectionDuration=GATEWAY_DURATION,
            requestTimeout=GATEWAY_DURATION,
        ),
    ),
)

GCP_BACKEND_POLICY = _closed(
    "default",
    "targetRef",
    default=_closed(
        timeoutSec={"type": "integer", "minimum": 1, "maximum": 2147483647},
        connectionDraining=_closed(drainingTimeoutSec={**COUNT, "maximum": 3600}),
        logging=_closed(enabled={"type": "boolean"}, sampleRate=COUNT),
    ),
    targetRef=TARGET,
)

HEALTH_CHECK_POLICY = _closed(
    "default",
    "targetRef",
    default=_closed(
        "config",
        checkIntervalSec=COUNT,
        timeoutSec=COUNT,
        healthyThreshold=COUNT,
        unhealthyThreshold=COUNT,
        config=_closed(
            "type",
            type={"enum": ["HTTP", "HTTPS"]},
            httpHealthCheck=_closed(
                portSpecification={"enum": ["USE_FIXED_PORT", "USE_SERVING_PORT"]},
                port=PORT,
                requestPath={"type": "string", "pattern": "^/"},
            ),
        ),
    ),
    targetRef=TARGET,
)

INGRESS_ROUTE = _closed(
    "entryPoints",
    "routes",
    entryPoints=_list(TEXT),
    routes=_list(
        _closed(
            "kind",
            "match",
            "services",
            kind={"enum": ["Rule"]},
            match=TEXT,
            middlewares=_list(_closed("name", name=TEXT)),
            services=_list(
                _closed(
                    "name",
                    "port",
                    name=TEXT,
                    port=PORT,
                    serversTransport=TEXT,
                    responseForwarding=_closed(
                        flushInterval={"type": "string", "pattern": "^-?[0-9]+(ms|s)$"}
                    ),
                )
            ),
        )
    ),
    tls=_closed(secretName=TEXT),
)

MIDDLEWARE = _closed(
    "headers", headers=_closed("customRequestHeaders", customRequestHeaders=LABELS)
)

SERVERS_TRANSPORT = _closed(
    maxIdleConnsPerHost=COUNT,
    forwardingTimeouts=_closed(
        dialTimeout=GO_DURATION, responseHeaderTimeout=GO_DURATION, idleConnTimeout=GO_DURATION
    ),
)

ROUTE = _closed(
    "to",
    host=TEXT,
    wildcardPolicy={"enum": ["None", "Subdomain"]},
    to=_closed("kind", "name", kind={"enum": ["Service"]}, name=TEXT, weight=COUNT),
    port=_closed("targetPort", targetPort=TEXT),
    tls=_closed(
        "termination",
        termination={"enum": ["edge", "passthrough", "reencrypt"]},
        insecureEdgeTerminationPolicy={"enum": ["None", "Allow", "Redirect"]},
    ),
)

SCHEMAS: dict[tuple[str, str], Schema] = {
    ("gateway.networking.k8s.io/v1", "Gateway"): GATEWAY,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): HTTP_ROUTE,
    ("gateway.networking.k8s.io/v1", "BackendTLSPolicy"): BACKEND_TLS_POLICY,
    ("gateway.networking.k8s.io/v1alpha3", "BackendTLSPolicy"): BACKEND_TLS_POLICY,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): SERVICE_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULE,
    ("cert-manager.io/v1", "Certificate"): CERTIFICATE,
    ("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy"): CLIENT_TRAFFIC_POLICY,
    ("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy"): BACKEND_TRAFFIC_POLICY,
    ("networking.gke.io/v1", "GCPBackendPolicy"): GCP_BACKEND_POLICY,
    ("networking.gke.io/v1", "HealthCheckPolicy"): HEALTH_CHECK_POLICY,
    ("route.openshift.io/v1", "Route"): ROUTE,
    ("traefik.io/v1alpha1", "IngressRoute"): INGRESS_ROUTE,
    ("traefik.io/v1alpha1", "Middleware"): MIDDLEWARE,
    ("traefik.io/v1alpha1", "ServersTransport"): SERVERS_TRANSPORT,
}


def is_known(item: dict[str, Any]) -> bool:
    return (item["apiVersion"], item["kind"]) in SCHEMAS


def validate(item: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError when the object has a field that its kind does not have."""
    schema = SCHEMAS[item["apiVersion"], item["kind"]]
    jsonschema.validate(item["spec"], schema)
    assert set(item) == {"apiVersion", "kind", "metadata", "spec"}
