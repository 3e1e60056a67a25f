{{/* The name of the Deployment and of everything that belongs to it. */}}
{{- define "router.name" -}}
{{- .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Cluster-wide objects carry the namespace too, so that two installations can't collide. */}}
{{- define "router.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "router.name" .) -}}
{{- end -}}

{{- define "router.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "router.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "router.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Sandboxes' managed NetworkPolicies admit pods by `app: sandbox-router`: this label is a contract. */}}
{{- define "router.selector" -}}
app: sandbox-router
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "router.labels" -}}
{{ include "router.selector" . }}
app.kubernetes.io/name: sandbox-router
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "router.tlsSecret" -}}
{{- .Values.tls.secret | default (printf "%s-tls" (include "router.name" .)) -}}
{{- end -}}

{{/* What discovery reads: the pods, and the objects that explain them. Nothing is ever written. */}}
{{- define "router.discoveryRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [agents.x-k8s.io]
  resources: [sandboxes]
  verbs: [get, list, watch]
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxclaims]
  verbs: [get, list, watch]
{{- end -}}

{{- define "router.subjects" -}}
- kind: ServiceAccount
  name: {{ include "router.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
