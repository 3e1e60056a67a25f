{{/* Seconds of a duration as the settings write it: 30, "30s", "5m", "1h", "500ms". */}}
{{- define "router.seconds" -}}
{{- $text := . | toString -}}
{{- if hasSuffix "ms" $text -}}{{- divf (trimSuffix "ms" $text | float64) 1000 | ceil -}}
{{- else if hasSuffix "s" $text -}}{{- trimSuffix "s" $text | float64 | ceil -}}
{{- else if hasSuffix "m" $text -}}{{- mulf (trimSuffix "m" $text | float64) 60 | ceil -}}
{{- else if hasSuffix "h" $text -}}{{- mulf (trimSuffix "h" $text | float64) 3600 | ceil -}}
{{- else -}}{{- $text | float64 | ceil -}}
{{- end -}}
{{- end -}}

{{/* Seconds of one setting: the user's value (0 too), or the router's own default. */}}
{{- define "router.settingSeconds" -}}
{{- $value := .default -}}
{{- if hasKey .config .key -}}{{- $value = get .config .key -}}{{- end -}}
{{- include "router.seconds" $value -}}
{{- end -}}

{{/* How long a pod may take to leave: the drain, the shutdown, and ten seconds to spare. */}}
{{- define "router.gracePeriod" -}}
{{- $drain := include "router.settingSeconds" (dict "config" .Values.config "key" "drain-delay" "default" "5s") | float64 -}}
{{- $shutdown := include "router.settingSeconds" (dict "config" .Values.config "key" "shutdown-timeout" "default" "30s") | float64 -}}
{{- $needed := add $drain $shutdown | int -}}
{{- $given := .Values.terminationGracePeriodSeconds | int -}}
{{- if and $given (le $given $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but config.drain-delay + config.shutdown-timeout take %d s: pods would be killed with requests open. Raise it above %d, or set 0 to let the chart choose." $given $needed $needed) -}}
{{- end -}}
{{- $given | default (add $needed 10) -}}
{{- end -}}

{{/* Cores of a CPU quantity, rounded up: 500m is one. */}}
{{- define "router.cores" -}}
{{- $text := . | toString -}}
{{- if hasSuffix "m" $text -}}{{- divf (trimSuffix "m" $text | float64) 1000 | ceil -}}
{{- else -}}{{- $text | float64 | ceil -}}
{{- end -}}
{{- end -}}

{{/* Workers as the pod shall have them. Without a CPU limit the router would see every core of the node, so `auto` goes by the request. */}}
{{- define "router.workers" -}}
{{- $workers := get .Values.config "workers" -}}
{{- if and (eq ($workers | toString) "auto") (not (dig "limits" "cpu" "" .Values.resources)) -}}
{{- $request := dig "requests" "cpu" "" .Values.resources -}}
{{- if not $request -}}
{{- fail "config.workers is auto, but the container has neither a CPU request nor a limit: every pod would start a worker for each core of its node. Set resources.requests.cpu or resources.limits.cpu, or a number of workers." -}}
{{- end -}}
{{- $workers = include "router.cores" $request | int -}}
{{- end -}}
{{- $workers -}}
{{- end -}}

{{/* Modes of authentication as one comma separated word; refuses to render without any, as the router refuses to start. */}}
{{- define "router.authModes" -}}
{{- $auth := get .Values.config "auth" -}}
{{- if not $auth -}}
{{- fail "config.auth is not set: say who may call. One or more of jwt, static, token-review, mtls, forwarded (for example --set config.auth={token-review}), or {none} to let everybody in on purpose." -}}
{{- end -}}
{{- if kindIs "string" $auth -}}{{- $auth -}}{{- else -}}{{- join "," $auth -}}{{- end -}}
{{- end -}}

{{- define "router.usesAuth" -}}
{{- if has .mode (splitList "," (include "router.authModes" .root)) -}}true{{- end -}}
{{- end -}}

{{/* Whether the pod talks to the Kubernetes API at all, and so needs its token. */}}
{{- define "router.talksToKubernetes" -}}
{{- if or (eq (get .Values.config "discovery") "kubernetes") (include "router.usesAuth" (dict "root" . "mode" "token-review")) (get .Values.config "subject-access-review") -}}true{{- end -}}
{{- end -}}

{{- define "router.hasPolicy" -}}
{{- $policy := .Values.files.policy -}}
{{- if or $policy.secret $policy.configMap $policy.inline -}}true{{- end -}}
{{- end -}}

{{- define "router.hasSandboxesFile" -}}
{{- $sandboxes := .Values.files.sandboxes -}}
{{- if or $sandboxes.configMap $sandboxes.inline -}}true{{- end -}}
{{- end -}}

{{/* Combinations that would only fail in the pod fail here, with the value to set. */}}
{{- define "router.checks" -}}
{{- $config := .Values.config -}}
{{- $modes := splitList "," (include "router.authModes" .) -}}
{{- $files := .Values.files -}}
{{- if and (has "none" $modes) (gt (len $modes) 1) -}}
{{- fail "config.auth lists none beside other modes: none lets everybody in, so it must stand alone." -}}
{{- end -}}
{{- if and (has "static" $modes) (not $files.staticToken.secret) -}}
{{- fail "config.auth has static: set files.staticToken.secret to a Secret that holds the token." -}}
{{- end -}}
{{- if and (has "jwt" $modes) (not $files.jwtSecret.secret) (not $files.jwks.secret) (not $files.jwks.configMap) (not (get $config "jwks-url")) -}}
{{- fail "config.auth has jwt: set files.jwtSecret.secret, files.jwks.secret, files.jwks.configMap or config.jwks-url, so that tokens can be verified." -}}
{{- end -}}
{{- if and (has "forwarded" $modes) (or (not (get $config "identity-header")) (not (get $config "trusted-proxies"))) -}}
{{- fail "config.auth has forwarded: set config.identity-header to the header in which the proxy says who has signed in, and config.trusted-proxies to that proxy's network." -}}
{{- end -}}
{{- if and $files.sessionKey.secret (has "none" $modes) -}}
{{- fail "files.sessionKey is set, but config.auth is none: nobody needs a session. Remove one of them." -}}
{{- end -}}
{{- if and $files.sessionKey.secret (not (get $config "base-domain")) (not (and (get $config "path-prefix") (get $config "session-path-mode"))) -}}
{{- fail "files.sessionKey is set, but no sandbox is named in a way that allows a session: set config.base-domain, or config.path-prefix with config.session-path-mode." -}}
{{- end -}}
{{- range $key := list "session-origins" "session-iframe" "session-path-mode" -}}
{{- if and (get $config $key) (not $files.sessionKey.secret) -}}
{{- fail (printf "config.%s is set, but there are no sessions: set files.sessionKey.secret." $key) -}}
{{- end -}}
{{- end -}}
{{- $mtls := get $config "mtls" | default "off" -}}
{{- $clientCA := or .Values.tls.clientCA.secret .Values.tls.clientCA.configMap -}}
{{- if and (has "mtls" $modes) (eq $mtls "off") (not (get $config "trusted-proxies")) -}}
{{- fail "config.auth has mtls, but no client certificate is ever seen: set config.mtls to optional or required, or config.trusted-proxies to the proxies that hand on X-Forwarded-Client-Cert." -}}
{{- end -}}
{{- if and (ne $mtls "off") (not .Values.tls.enabled) -}}
{{- fail (printf "config.mtls is %s: set tls.enabled, since certificates are only asked for on the TLS port." $mtls) -}}
{{- end -}}
{{- if and (ne $mtls "off") (not $clientCA) -}}
{{- fail (printf "config.mtls is %s: set tls.clientCA.secret or tls.clientCA.configMap to the authority that signs clients." $mtls) -}}
{{- end -}}
{{- if and $clientCA (eq $mtls "off") -}}
{{- fail "tls.clientCA is set, but config.mtls is off: set it to optional or required." -}}
{{- end -}}
{{- if and (get $config "trust-pod-ip-header") (ne (get $config "discovery") "dns") -}}
{{- fail "config.trust-pod-ip-header is for config.discovery dns only: the watch knows the addresses itself." -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.secret) (not .Values.tls.certManager.enabled) -}}
{{- fail "tls.enabled needs tls.secret (a kubernetes.io/tls Secret) or tls.certManager.enabled." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name." -}}
{{- end -}}
{{- if and (eq (get $config "discovery") "file") (not (include "router.hasSandboxesFile" .)) -}}
{{- fail "config.discovery is file: set files.sandboxes.configMap or files.sandboxes.inline." -}}
{{- end -}}
{{- if and (eq (get $config "discovery") "file") .Values.networkPolicy.enabled (not .Values.networkPolicy.extraEgress) -}}
{{- fail "config.discovery is file: set networkPolicy.extraEgress to where those sandboxes live, or networkPolicy.enabled=false." -}}
{{- end -}}
{{- if and .Values.gateway.enabled (not .Values.gateway.parentRefs) -}}
{{- fail "gateway.enabled needs gateway.parentRefs: the Gateway that the route hangs on." -}}
{{- end -}}
{{- if and .Values.gateway.backendTLS.enabled (not .Values.tls.enabled) -}}
{{- fail "gateway.backendTLS.enabled needs tls.enabled: the Gateway would speak TLS to a port that has none." -}}
{{- end -}}
{{- include "router.checkLabels" . -}}
{{- include "router.checkAvailability" . -}}
{{- include "router.checkScaling" . -}}
{{- if and (or .Values.service.nodePort .Values.service.httpsNodePort) (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.nodePort is set, but service.type is ClusterIP: set it to NodePort or LoadBalancer." -}}
{{- end -}}
{{- if and .Values.service.loadBalancerClass (ne .Values.service.type "LoadBalancer") -}}
{{- fail "service.loadBalancerClass is set, but service.type is not LoadBalancer." -}}
{{- end -}}
{{- if and (eq .Values.dnsPolicy "None") (not .Values.dnsConfig) -}}
{{- fail "dnsPolicy is None: set dnsConfig.nameservers, or names could not be resolved." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts." -}}
{{- end -}}
{{- end -}}

{{/* Numbers of pods that would hold up every rollout, or every node drain. */}}
{{- define "router.checkAvailability" -}}
{{- $none := list "0" "0%" -}}
{{- with .Values.strategy.rollingUpdate -}}
{{- if and (has (.maxUnavailable | toString) $none) (has (.maxSurge | toString) $none) -}}
{{- fail "strategy.rollingUpdate has maxUnavailable 0 and maxSurge 0: no rollout could ever begin. Let one of them be at least 1." -}}
{{- end -}}
{{- end -}}
{{- $scaling := .Values.autoscaling -}}
{{- $pods := ternary $scaling.minReplicas .Values.replicaCount $scaling.enabled | int -}}
{{- with .Values.podDisruptionBudget -}}
{{- if .enabled -}}
{{- $least := .minAvailable | toString -}}
{{- if and (eq $pods 1) (eq $least "") (has (.maxUnavailable | toString) $none) -}}
{{- fail "podDisruptionBudget.maxUnavailable is 0 with one replica: its node could never be drained. Set replicaCount (or autoscaling.minReplicas) to 2, or maxUnavailable to 1." -}}
{{- end -}}
{{- if and (ge $pods 1) (ne $least "") (not (has $least $none)) -}}
{{- if or (eq $pods 1) (eq $least "100%") (and (not (hasSuffix "%" $least)) (ge ($least | int) $pods)) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %s with %d replicas: no node with a router could ever be drained. Lower it, or raise replicaCount (or autoscaling.minReplicas)." $least $pods) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A HorizontalPodAutoscaler that could never act. */}}
{{- define "router.checkScaling" -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if not (or .targetCPUUtilizationPercentage .targetInflightRequests) -}}
{{- fail "autoscaling.enabled needs autoscaling.targetCPUUtilizationPercentage or autoscaling.targetInflightRequests." -}}
{{- end -}}
{{- if gt (.minReplicas | int) (.maxReplicas | int) -}}
{{- fail (printf "autoscaling.minReplicas (%d) is more than autoscaling.maxReplicas (%d)." (.minReplicas | int) (.maxReplicas | int)) -}}
{{- end -}}
{{- if .targetCPUUtilizationPercentage -}}
{{- $resources := $.Values.resources -}}
{{- if not (or (dig "requests" "cpu" "" $resources) (dig "limits" "cpu" "" $resources)) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage is a share of the CPU request, and there is none: set resources.requests.cpu, or scale by autoscaling.targetInflightRequests alone (targetCPUUtilizationPercentage=0)." -}}
{{- end -}}
{{- range $.Values.extraContainers -}}
{{- if not (or (dig "resources" "requests" "cpu" "" .) (dig "resources" "limits" "cpu" "" .)) -}}
{{- fail (printf "autoscaling by CPU needs a CPU request in every container of the pod: give extraContainers %q resources.requests.cpu." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The router's YAML file: what the user said, and where the chart mounts what it needs. */}}
{{- define "router.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "auth" (splitList "," (include "router.authModes" .)) -}}
{{- if hasKey $config "workers" -}}
{{- $workers := include "router.workers" . -}}
{{- $_ := set $config "workers" (ternary $workers ($workers | int) (eq $workers "auto")) -}}
{{- end -}}
{{- $_ := set $config "http-bind" ":8080" -}}
{{- $_ := set $config "admin-bind" ":9090" -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $config "https-bind" ":8443" -}}
{{- $_ := set $config "tls-cert-file" "/etc/sandbox-router/tls/tls.crt" -}}
{{- $_ := set $config "tls-key-file" "/etc/sandbox-router/tls/tls.key" -}}
{{- end -}}
{{- if or .Values.tls.clientCA.secret .Values.tls.clientCA.configMap -}}
{{- $_ := set $config "tls-client-ca-file" (printf "/etc/sandbox-router/client-ca/%s" .Values.tls.clientCA.key) -}}
{{- end -}}
{{- if .Values.files.staticToken.secret -}}
{{- $_ := set $config "static-token-file" (printf "/etc/sandbox-router/static-token/%s" .Values.files.staticToken.key) -}}
{{- end -}}
{{- if .Values.files.jwtSecret.secret -}}
{{- $_ := set $config "jwt-secret-file" (printf "/etc/sandbox-router/jwt-secret/%s" .Values.files.jwtSecret.key) -}}
{{- end -}}
{{- if .Values.files.sessionKey.secret -}}
{{- $_ := set $config "session-key-file" (printf "/etc/sandbox-router/session-key/%s" .Values.files.sessionKey.key) -}}
{{- end -}}
{{- if or .Values.files.jwks.secret .Values.files.jwks.configMap -}}
{{- $_ := set $config "jwks-file" (printf "/etc/sandbox-router/jwks/%s" .Values.files.jwks.key) -}}
{{- end -}}
{{- if or .Values.files.jwksCA.secret .Values.files.jwksCA.configMap -}}
{{- $_ := set $config "jwks-ca-file" (printf "/etc/sandbox-router/jwks-ca/%s" .Values.files.jwksCA.key) -}}
{{- end -}}
{{- if include "router.hasPolicy" . -}}
{{- $_ := set $config "policy-file" (printf "/etc/sandbox-router/policy/%s" .Values.files.policy.key) -}}
{{- end -}}
{{- if include "router.hasSandboxesFile" . -}}
{{- $_ := set $config "sandboxes-file" (printf "/etc/sandbox-router/sandboxes/%s" .Values.files.sandboxes.key) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* A folder from a Secret or a ConfigMap: the only source given. */}}
{{- define "router.volume" -}}
{{- if .secret -}}
secret:
  secretName: {{ .secret }}
  defaultMode: 0440
{{- else -}}
configMap:
  name: {{ .configMap }}
{{- end -}}
{{- end -}}
