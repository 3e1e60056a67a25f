{{/* The rules of files/rules.yaml with what metrics.prometheusRule says about them. */}}
{{- define "router.rules" -}}
{{- $rules := .Files.Get "files/rules.yaml" | fromYaml -}}
{{- $said := .Values.metrics.prometheusRule -}}
{{- range $group := $rules.groups -}}
{{- $kept := list -}}
{{- range $rule := $group.rules -}}
{{- $tuning := get $said.alerts ($rule.alert | default "") | default dict -}}
{{- if ne (get $tuning "enabled" | toString) "false" -}}
{{- if $rule.alert -}}
{{- include "router.tuneAlert" (dict "root" $ "rule" $rule "tuning" $tuning) -}}
{{- end -}}
{{- $kept = append $kept $rule -}}
{{- end -}}
{{- end -}}
{{- $_ := set $group "rules" $kept -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}

{{/* Changes one alert in place; prints nothing. */}}
{{- define "router.tuneAlert" -}}
{{- $rule := .rule -}}
{{- $tuning := .tuning -}}
{{- $values := .root.Values -}}
{{- $budget := $values.metrics.prometheusRule.errorBudget | float64 -}}
{{- if hasPrefix "SandboxRouterErrorBudget" $rule.alert -}}
{{- $_ := set $rule "expr" ($rule.expr | replace "* 0.001)" (printf "* %v)" $budget)) -}}
{{- $target := subf 100 (mulf 100 $budget) | printf "%.6g" -}}
{{- $_ := set $rule.annotations "description" ($rule.annotations.description | replace "target: 99.9 %" (printf "target: %s %%" $target)) -}}
{{- end -}}
{{- $threshold := get $tuning "threshold" -}}
{{- if and (eq $rule.alert "SandboxRouterWaitingRoomFilling") (not (hasKey $tuning "threshold")) -}}
{{- /* The file is for the default waiting room of 1024: the alert stands at four fifths of yours. */ -}}
{{- $threshold = div (mul (get $values.config "waiting-room" | default 1024 | int) 4) 5 -}}
{{- end -}}
{{- if ne ($threshold | toString) "" -}}
{{- $number := "([<>]) [0-9.]+(\\s|$)" -}}
{{- if ne (len (regexFindAll $number $rule.expr -1)) 1 -}}
{{- fail (printf "metrics.prometheusRule.alerts.%s has no threshold to set: it asks for a state, or goes by metrics.prometheusRule.errorBudget." $rule.alert) -}}
{{- end -}}
{{- $_ := set $rule "expr" (regexReplaceAll $number $rule.expr (printf "${1} %v${2}" $threshold)) -}}
{{- end -}}
{{- with $tuning.for -}}
{{- $_ := set $rule "for" . -}}
{{- end -}}
{{- with $tuning.severity -}}
{{- $_ := set $rule.labels "severity" . -}}
{{- end -}}
{{- range $name, $value := $values.metrics.prometheusRule.alertLabels -}}
{{- $_ := set $rule.labels $name $value -}}
{{- end -}}
{{- $docs := $values.metrics.prometheusRule.runbookBaseURL | default (ternary "" (printf "%s/docs" .root.Chart.Home) (empty .root.Chart.Home)) -}}
{{- if $docs -}}
{{- $page := $rule.annotations.runbook | trimPrefix "docs/" -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" ($docs | trimSuffix "/") $page) -}}
{{- end -}}
{{- end -}}
