{{/* The name of the Deployment and of everything that belongs to it. */}}
{{- define "router.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* What lies outside of the release's namespace carries it in its name, so that two installations can't collide: cluster-wide objects, and Roles in namespaces of sandboxes. */}}
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
{{- with .Values.fullnameOverride }}
{{- /* Two of this chart in one parent share the release's name; a selector can't change, so only the new value adds this. */}}
app.kubernetes.io/name: {{ . }}
{{- end }}
{{- end -}}

{{- define "router.ownLabels" -}}
{{ include "router.selector" . }}
{{- if not .Values.fullnameOverride }}
app.kubernetes.io/name: sandbox-router
{{- end }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "router.labels" -}}
{{- toYaml (merge (include "router.ownLabels" . | fromYaml) .Values.commonLabels) -}}
{{- end -}}

{{- define "router.podLabels" -}}
{{- toYaml (merge (include "router.labels" . | fromYaml) .Values.podLabels) -}}
{{- end -}}

{{/* Fails when a label of the user's would replace one that Services, policies or Helm go by. */}}
{{- define "router.checkLabels" -}}
{{- $own := include "router.ownLabels" . | fromYaml -}}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- range $label, $_ := $labels -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s sets %s, which the chart itself sets: Services, policies and rollouts go by it. Take another label." $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of the pod that `helm test` runs: none of the Services' selectors may match it. */}}
{{- define "router.testSelector" -}}
app: sandbox-router-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "router.suspenderName" -}}
{{- printf "%s-suspend-idle" (include "router.name" .) -}}
{{- end -}}

{{/* Of the suspender's pod: not the router's, for Services and sandboxes' policies go by that. */}}
{{- define "router.suspenderSelector" -}}
app: sandbox-router-suspend-idle
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.fullnameOverride }}
app.kubernetes.io/name: {{ . }}
{{- end }}
{{- end -}}

{{- define "router.suspenderLabels" -}}
{{- $labels := omit (include "router.labels" . | fromYaml) "app" -}}
{{- toYaml (merge (dict "app" "sandbox-router-suspend-idle" "app.kubernetes.io/component" "suspend-idle") $labels) -}}
{{- end -}}

{{/* "true" when requests may wake sandboxes. */}}
{{- define "router.wakes" -}}
{{- $wake := get .Values.config "wake" | toString -}}
{{- if and .Values.rbac.create (has $wake (list "annotated" "all")) -}}true{{- end -}}
{{- end -}}

{{- define "router.tlsSecret" -}}
{{- .Values.tls.secret | default (printf "%s-tls" (include "router.name" .)) -}}
{{- end -}}

{{/* What discovery reads: the pods, and the objects that explain them. With waking, the mode of a Sandbox is written: see admissionpolicy.yaml. */}}
{{- define "router.discoveryRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [agents.x-k8s.io]
  resources: [sandboxes]
  verbs: [{{ if include "router.wakes" . }}get, {{ end }}list, watch{{ if include "router.wakes" . }}, patch{{ end }}]
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxclaims]
  verbs: [list, watch]
{{- end -}}

{{- define "router.subjects" -}}
- kind: ServiceAccount
  name: {{ include "router.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* What suspending needs of Sandboxes. */}}
{{- define "router.suspenderRules" -}}
- apiGroups: [agents.x-k8s.io]
  resources: [sandboxes]
  verbs: [get, list, watch{{ if not .Values.suspendIdle.dryRun }}, patch{{ end }}]
{{- end -}}
