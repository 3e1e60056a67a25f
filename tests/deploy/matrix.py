"""The matrix of values that the chart's tests render: one name for each way of running the router."""

from __future__ import annotations

from typing import Any

from tests.deploy.rendering import TOKEN_REVIEW

_STATIC = {"staticToken": {"secret": "router-token"}}

MATRIX: dict[str, dict[str, Any]] = {
    "token-review": TOKEN_REVIEW,
    "nobody checked": {"config": {"auth": ["none"]}},
    "auth as text": {"config": {"auth": "static,token-review"}, "files": _STATIC},
    "static": {"config": {"auth": ["static"]}, "files": _STATIC},
    "jwt with shared secrets": {
        "config": {
            "auth": ["jwt"],
            "jwt-issuer": "https://issuer.example",
            "jwt-audience": ["router"],
        },
        "files": {"jwtSecret": {"secret": "router-jwt"}},
    },
    "jwt with a key set in a ConfigMap and a policy": {
        "config": {"auth": ["jwt"]},
        "files": {
            "jwks": {"configMap": "issuer-keys"},
            "policy": {
                "inline": {
                    "rules": [
                        {
                            "principal": {"group": "team-a"},
                            "sandboxes": [{"namespace": "team-a", "name": "*", "ports": [8888]}],
                        }
                    ]
                }
            },
        },
    },
    "jwt with a key set by URL": {
        "config": {"auth": ["jwt"], "jwks-url": "https://issuer.example/keys"},
        "files": {
            "jwksCA": {"configMap": "issuer-ca"},
            "policy": {"secret": "router-policy", "key": "rules.yaml"},
        },
    },
    "roles in listed namespaces": {
        "config": {"auth": ["static"], "namespaces": ["team-a", "team-b"]},
        "files": _STATIC,
    },
    "roles and reviews": {
        "config": {"auth": ["token-review"], "namespaces": "team-a,team-b"},
        "rbac": {"callerRole": True},
    },
    "tls from a Secret": {
        "config": {"auth": ["static"]},
        "files": _STATIC,
        "tls": {"enabled": True, "secret": "router-tls"},
        "service": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "httpsAppProtocol": "HTTPS",
        },
    },
    "mtls with cert-manager": {
        "config": {"auth": ["mtls"], "mtls": "required", "base-domain": "sandbox.example.com"},
        "files": {"policy": {"configMap": "router-policy"}},
        "tls": {
            "enabled": True,
            "clientCA": {"configMap": "client-ca"},
            "certManager": {
                "enabled": True,
                "issuerRef": {"name": "internal", "kind": "ClusterIssuer"},
                "dnsNames": ["router.example.com"],
            },
        },
    },
    "certificates from a trusted proxy": {
        "config": {"auth": ["mtls"], "trusted-proxies": ["10.0.0.0/8"]},
        "files": {"policy": {"configMap": "router-policy"}},
    },
    "scaled by cpu and by requests": {
        **TOKEN_REVIEW,
        "autoscaling": {"enabled": True, "targetInflightRequests": 200},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
    },
    "a tight network": {
        **TOKEN_REVIEW,
        "networkPolicy": {
            "clients": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}
            ],
            "sandboxPorts": [8888, 3000],
            "apiServer": {"cidrs": ["10.96.0.1/32"], "ports": [443]},
            "extraEgress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}],
        },
        "tracing": {"endpoint": "http://collector.tracing:4317"},
    },
    "idle sandboxes are suspended": {**TOKEN_REVIEW, "suspendIdle": {"enabled": True}},
    "idle sandboxes of listed namespaces would be suspended": {
        "config": {"auth": ["static"], "namespaces": ["team-a", "team-b"], "log-format": "text"},
        "files": _STATIC,
        "suspendIdle": {"enabled": True, "dryRun": True, "replicaCount": 2, "interval": "1m"},
        "admissionPolicy": {"enabled": False},
    },
    "no network policy": {**TOKEN_REVIEW, "networkPolicy": {"enabled": False}},
    "watched by the operator": {
        **TOKEN_REVIEW,
        "metrics": {
            "serviceMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "relabelings": [{"targetLabel": "cluster", "replacement": "eu-1"}],
                "metricRelabelings": [
                    {
                        "sourceLabels": ["__name__"],
                        "regex": "sandbox_router_request_duration_seconds_bucket",
                        "action": "drop",
                    }
                ],
            },
            "prometheusRule": {
                "enabled": True,
                "runbookBaseURL": "https://git.example.com/router/docs/",
                "errorBudget": 0.005,
                "alertLabels": {"team": "platform"},
                "alerts": {
                    "SandboxRouterAuthFailures": {"enabled": False},
                    "SandboxRouterUpstreamErrors": {
                        "threshold": 0.2,
                        "for": "1h",
                        "severity": "info",
                    },
                },
            },
            "dashboard": {"enabled": True},
        },
    },
    "behind a Gateway": {
        "config": {"auth": ["static"], "base-domain": "sandbox.example.com"},
        "files": _STATIC,
        "gateway": {
            "enabled": True,
            "parentRefs": [{"name": "external", "namespace": "gateways", "sectionName": "https"}],
            "hostnames": ["*.sandbox.example.com"],
            "filters": [
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"remove": ["X-Forwarded-Client-Cert"]},
                }
            ],
        },
    },
    "behind a Gateway that speaks TLS inside": {
        "config": {"auth": ["static"]},
        "files": _STATIC,
        "tls": {"enabled": True, "secret": "router-tls"},
        "gateway": {
            "enabled": True,
            "parentRefs": [{"name": "external"}],
            "backendTLS": {"enabled": True, "caConfigMap": "router-ca"},
        },
    },
    "behind nginx": {
        "config": {"auth": ["static"], "trusted-proxies": ["10.0.0.0/8"]},
        "files": _STATIC,
        "ingress": {
            "enabled": True,
            "controller": "nginx",
            "className": "nginx",
            "hosts": ["router.example.com", "*.sandbox.example.com"],
            "tls": [{"secretName": "wildcard", "hosts": ["*.sandbox.example.com"]}],
            "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "1g"},
        },
    },
    "sandboxes from a file": {
        "config": {"auth": ["static"], "discovery": "file"},
        "files": {**_STATIC, "sandboxes": {"inline": [{"name": "box-a", "host": "10.1.2.3"}]}},
        "networkPolicy": {"extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}]},
    },
    "sandboxes by dns": {
        "config": {"auth": ["static"], "discovery": "dns", "trust-pod-ip-header": True},
        "files": _STATIC,
    },
    "every knob of the pod": {
        **TOKEN_REVIEW,
        "config": {
            **TOKEN_REVIEW["config"],
            "drain-delay": "1m",
            "shutdown-timeout": "1.5m",
            "max-body-bytes": 1073741824,
            "path-prefix": "/s",
            "workers": "auto",
            "log-format": "text",
        },
        "image": {"repository": "registry.example/sandbox-router", "digest": f"sha256:{'ab' * 32}"},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccount": {"annotations": {"iam.example/role": "router"}},
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"team": "platform"},
        "nodeSelector": {"pool": "edge"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "runtimeClassName": "runc",
        "extraEnv": [{"name": "SANDBOX_ROUTER_LOG_LEVEL", "value": "debug"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "sandbox-router"}},
            }
        ],
    },
    "both families, by a load balancer of its own class": {
        **TOKEN_REVIEW,
        "service": {
            "type": "LoadBalancer",
            "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv6", "IPv4"],
            "loadBalancerClass": "service.k8s.aws/nlb",
            "nodePort": 30080,
        },
    },
    "company beside the router": {
        **TOKEN_REVIEW,
        "commonLabels": {"cost-center": "platform"},
        "deploymentAnnotations": {"reloader.stakater.com/auto": "true"},
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "initContainers": [{"name": "first", "image": "busybox:1.37", "command": ["true"]}],
        "extraContainers": [
            {
                "name": "sidecar",
                "image": "collector:1",
                "resources": {"requests": {"cpu": "50m"}},
            }
        ],
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "more", "namespace": "{{ .Release.Namespace }}"},
                "data": {"service": "{{ .Values.service.name }}"},
            },
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata: {release: '{{ .Release.Name }}'}",
        ],
        "autoscaling": {"enabled": True},
        "podDisruptionBudget": {"minAvailable": "50%"},
    },
    "DNS on one port, no test": {
        **TOKEN_REVIEW,
        "networkPolicy": {"dnsPorts": [53]},
        "tests": {"enabled": False},
    },
}
