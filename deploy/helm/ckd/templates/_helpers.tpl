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
{{- add 64 (mul 2 (include "ckd.mebibytes" (index .Values.settings "max-open-bytes"))) -}}
{{- end -}}

{{- define "ckd.memoryLimit" -}}
{{- $s := .Values.settings -}}
{{- $open := mul (int64 (index $s "max-open-bytes")) (ternary 4 2 .Values.http.enabled) -}}
{{- $messages := mul (int64 (index $s "max-message-bytes")) (add (int64 (index $s "max-streams")) (int64 (index $s "max-calls"))) -}}
{{- div (mul 10 (add 64 (include "ckd.mebibytes" (add $open $messages)))) 9 -}}
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
{{- if and $pdb.enabled (regexMatch "^[0-9]+$" (toString $pdb.minAvailable)) (ge (int $pdb.minAvailable) (int (include "ckd.leastReplicas" .))) -}}
{{- fail "podDisruptionBudget.minAvailable is all replicas: no node could ever be drained" -}}
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

{{- define "ckd.terminationGrace" -}}
{{- .Values.terminationGracePeriodSeconds | default (add (include "ckd.leastGrace" .) 5) -}}
{{- end -}}
