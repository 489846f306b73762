{{/* Names and labels. */}}

{{- define "ckd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ckd.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ckd.labels" -}}
{{ include "ckd.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ckd.metadata" -}}
namespace: {{ .Release.Namespace }}
labels: {{- include "ckd.labels" . | nindent 2 }}
{{- end -}}

{{- define "ckd.serviceAccountName" -}}
{{- $own := ternary (include "ckd.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "ckd.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ckd.policiesConfigMap" -}}
{{- default (printf "%s-policies" (include "ckd.fullname" .)) .Values.policiesConfigMap -}}
{{- end -}}

{{- define "ckd.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "ckd.fullname" . }}-tls
{{- else -}}
{{ .Values.tls.existingSecret }}
{{- end -}}
{{- end -}}

{{/* ckd.seconds: a setting such as 10s, 1m30s or 500ms in whole seconds, rounded up. */}}
{{- define "ckd.seconds" -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 -}}
{{- $n := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $ms = add $ms (mul $n (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end -}}

{{- define "ckd.mebibytes" -}}
{{- div (add (int64 .) 1048575) 1048576 -}}
{{- end -}}

{{/* ckd.memoryRequest and ckd.memoryLimit: MiB that follow from the settings; see values.yaml, resources. */}}
{{- define "ckd.memoryRequest" -}}
{{- add (include "ckd.memoryOfModels" .) (mul 2 (include "ckd.mebibytes" (index .Values.settings "max-open-bytes"))) -}}
{{- end -}}

{{- define "ckd.memoryOfModels" -}}
{{- add 56 (mul 8 (int64 .Values.models)) -}}
{{- end -}}

{{- define "ckd.memoryLimit" -}}
{{- $s := .Values.settings -}}
{{- $open := mul (int64 (index $s "max-open-bytes")) (ternary 4 2 .Values.http.enabled) -}}
{{- $messages := mul (int64 (index $s "max-message-bytes")) (add (int64 (index $s "max-streams")) (int64 (index $s "max-calls"))) -}}
{{- div (mul 10 (add (include "ckd.memoryOfModels" .) (include "ckd.mebibytes" (add $open $messages)))) 9 -}}
{{- end -}}

{{/* ckd.check fails where values contradict each other in ways that a schema does not tell. */}}
{{- define "ckd.check" -}}
{{- $v := .Values -}}
{{- if and (ne $v.mode "deployment") (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "mode %s: native sidecars need Kubernetes 1.29, this is %s" $v.mode .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq $v.mode "sidecar") (not $v.sidecar.container) -}}
{{- fail "mode sidecar: sidecar.container: none given, expected the container of your model server" -}}
{{- end -}}
{{- if and (ne $v.mode "sidecar") $v.sidecar.container -}}
{{- fail (printf "mode %s: sidecar.container is of mode sidecar" $v.mode) -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (ne $v.mode "deployment") -}}
{{- fail (printf "mode %s: autoscaling is of mode deployment: a sidecar grows with its model server" $v.mode) -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (ne $v.mode "deployment") -}}
{{- fail (printf "mode %s: serviceMonitor is of mode deployment, expected podMonitor" $v.mode) -}}
{{- end -}}
{{- if and $v.podMonitor.enabled (eq $v.mode "deployment") -}}
{{- fail "mode deployment: podMonitor is of modes sidecar and library, expected serviceMonitor" -}}
{{- end -}}
{{- if and $v.policies $v.policiesConfigMap -}}
{{- fail "policies and policiesConfigMap: both given, expected one" -}}
{{- end -}}
{{- if and $v.tls.existingSecret $v.tls.certManager.enabled -}}
{{- fail "tls.existingSecret and tls.certManager.enabled: both given, expected one" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: none given, expected the name of an issuer" -}}
{{- end -}}
{{- $tls := include "ckd.tlsSecret" . -}}
{{- if and (not $tls) (or $v.tls.admin $v.tls.clientCA.existingSecret) -}}
{{- fail "tls.admin and tls.clientCA mean nothing without tls.existingSecret or tls.certManager" -}}
{{- end -}}
{{- if and $v.tls.clientCA.crlKey (not $v.tls.clientCA.existingSecret) -}}
{{- fail "tls.clientCA.crlKey means nothing without tls.clientCA.existingSecret" -}}
{{- end -}}
{{- if and (index $v.settings "admin-reload") (not (and $v.tls.admin $v.access.existingSecret)) -}}
{{- fail "settings.admin-reload: anybody who reaches the admin port could reload the policies, expected tls.admin and access.existingSecret" -}}
{{- end -}}
{{- if and (index $v.settings "recent-inputs") (not (and $v.tls.admin $v.access.existingSecret)) -}}
{{- fail "settings.recent-inputs: whoever reaches the admin port would see ids of inputs, expected tls.admin and access.existingSecret" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (not (or $v.autoscaling.targetCPUUtilizationPercentage $v.autoscaling.targetInputsOpen)) -}}
{{- fail "autoscaling: no target, expected targetCPUUtilizationPercentage or targetInputsOpen" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled $v.autoscaling.targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" $v.resources)) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage is of resources.requests.cpu, which is not given" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- $pdb := $v.podDisruptionBudget -}}
{{- if and $pdb.enabled (eq (eq (toString $pdb.maxUnavailable) "") (eq (toString $pdb.minAvailable) "")) -}}
{{- fail "podDisruptionBudget: expected one of maxUnavailable and minAvailable; make the other \"\"" -}}
{{- end -}}
{{- $least := int (include "ckd.leastReplicas" .) -}}
{{- if and $pdb.enabled (gt $least 1) (ne (toString $pdb.minAvailable) "") (ge (int (include "ckd.pods" (list $pdb.minAvailable $least))) $least) -}}
{{- fail "podDisruptionBudget.minAvailable is all replicas: no node could ever be drained" -}}
{{- end -}}
{{- if and $pdb.enabled (gt $least 1) (has (toString $pdb.maxUnavailable) (list "0" "0%")) -}}
{{- fail "podDisruptionBudget.maxUnavailable is no replica: no node could ever be drained" -}}
{{- end -}}
{{- /* A label that comes twice is refused by Kubernetes, and one that a selector is of must not be another. */ -}}
{{- $selected := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "ckd/sidecar" -}}
{{- $own := concat $selected (list "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "app.kubernetes.io/version" "helm.sh/chart") -}}
{{- $common := $v.commonLabels | default dict -}}
{{- range list
      (list "commonLabels" $common $own dict)
      (list "podLabels" $v.podLabels $selected $common)
      (list "podAnnotations" $v.podAnnotations (list "checksum/settings") dict)
      (list "serviceMonitor.labels" $v.serviceMonitor.labels $own $common)
      (list "podMonitor.labels" $v.podMonitor.labels $own $common)
      (list "prometheusRule.labels" $v.prometheusRule.labels $own $common)
      (list "dashboards.labels" $v.dashboards.labels $own $common) -}}
{{- $value := index . 0 -}}
{{- $taken := index . 2 -}}
{{- $elsewhere := index . 3 -}}
{{- range $key, $_ := index . 1 -}}
{{- if has $key $taken -}}
{{- fail (printf "%s: %s is for the chart to set" $value $key) -}}
{{- end -}}
{{- if hasKey $elsewhere $key -}}
{{- fail (printf "%s: %s is in commonLabels too, expected it in one" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $v.terminationGracePeriodSeconds -}}
{{- if lt (int .) (int (include "ckd.leastGrace" $)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short for preStopSleepSeconds and shutdown-grace, expected %s at least" (int .) (include "ckd.leastGrace" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ckd.leastReplicas" -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- end -}}

{{/* ckd.pods: a number or percent of so many pods, rounded up as Kubernetes does it. */}}
{{- define "ckd.pods" -}}
{{- $n := toString (index . 0) -}}
{{- if hasSuffix "%" $n -}}
{{- div (add (mul (trimSuffix "%" $n | int) (index . 1)) 99) 100 -}}
{{- else -}}
{{- $n -}}
{{- end -}}
{{- end -}}

{{/* ckd.preStop is the seconds before SIGTERM: a sidecar is told when nobody needs it any more. */}}
{{- define "ckd.preStop" -}}
{{- if and (eq .Values.mode "deployment") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- .Values.preStopSleepSeconds | int -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{- define "ckd.leastGrace" -}}
{{- add (include "ckd.preStop" .) (include "ckd.seconds" (index .Values.settings "shutdown-grace")) 5 -}}
{{- end -}}

{{/* Beside a model server its own time comes first, for which Kubernetes has 30 s. */}}
{{- define "ckd.terminationGrace" -}}
{{- .Values.terminationGracePeriodSeconds | default (add (include "ckd.leastGrace" .) (ternary 5 30 (eq .Values.mode "deployment"))) -}}
{{- end -}}
