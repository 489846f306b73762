{{/*
Names and labels. Manifests quote them, since YAML would take names such as 123, true and on for other types.
*/}}

{{- define "ckd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

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
app.kubernetes.io/name: {{ include "ckd.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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
namespace: {{ .Release.Namespace | quote }}
labels: {{- include "ckd.labels" . | nindent 2 }}
{{- end -}}

{{- define "ckd.serviceAccountName" -}}
{{- $own := ternary (include "ckd.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "ckd.image" -}}
{{- with .Values.image -}}
{{- $repository := .repository -}}
{{- with ($.Values.global).imageRegistry | default .registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- if .digest -}}
{{ $repository }}@{{ .digest }}
{{- else -}}
{{ $repository }}:{{ default $.Chart.AppVersion .tag }}
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

{{/*
ckd.file returns the text of a file of the chart. It fails if the file is missing, blank or only comments, and says what to
do instead. Its arguments are a list: the root, the path, and what to do.
*/}}
{{- define "ckd.file" -}}
{{- $path := index . 1 -}}
{{- $text := (index . 0).Files.Get $path -}}
{{- if include "ckd.isBlank" $text -}}
{{- fail (printf "%s is missing or empty in this copy of the chart: %s" $path (index . 2)) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* ckd.isBlank reports whether a text has no YAML. Blank lines may contain tabs, which YAML refuses. */}}
{{- define "ckd.isBlank" -}}
{{- if not (replace "\t" " " . | fromYaml) -}}true{{- end -}}
{{- end -}}

{{/* ckd.seconds converts a time such as 10s, 1m30s or 500ms to whole seconds, rounded up. */}}
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

{{/* ckd.memoryRequest and ckd.memoryLimit compute MiB from the settings; see resources in values.yaml. */}}
{{- define "ckd.memoryRequest" -}}
{{- add (include "ckd.memoryOfModels" .) (mul 2 (include "ckd.mebibytes" (index .Values.settings "max-open-bytes"))) -}}
{{- end -}}

{{- define "ckd.memoryOfModels" -}}
{{- add 56 (mul 8 (int64 .Values.models)) (ternary 0 16 (eq "off" (index .Values.settings "decision-log" | default "off"))) -}}
{{- end -}}

{{- define "ckd.memoryLimit" -}}
{{- $s := .Values.settings -}}
{{- $open := mul (int64 (index $s "max-open-bytes")) (ternary 3 2 .Values.http.enabled) -}}
{{- $streams := int64 (index $s "max-streams") -}}
{{- $unary := min 1024 (max 16 (div (int64 (index $s "max-open-bytes")) 1048576)) -}}
{{- $calls := mul 353280 (add (mul 2 $streams) $unary 64) -}}
{{- $connections := mul 196608 (int64 (index $s "max-connections" | default 1024)) -}}
{{- div (mul 10 (add (include "ckd.memoryOfModels" .) (include "ckd.mebibytes" (add $open $calls $connections)))) 9 -}}
{{- end -}}

{{/* ckd.alone reports whether the daemon has pods of its own. */}}
{{- define "ckd.alone" -}}
{{- if has .Values.mode (list "deployment" "ledger") -}}true{{- end -}}
{{- end -}}

{{- define "ckd.leastReplicas" -}}
{{- if eq .Values.mode "ledger" -}}
1
{{- else -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- end -}}
{{- end -}}

{{/* ckd.preStop renders the seconds before SIGTERM. A sidecar needs none: Kubernetes stops it after the model server. */}}
{{- define "ckd.preStop" -}}
{{- if and (include "ckd.alone" . | eq "true") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- .Values.preStopSleepSeconds | int -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{- define "ckd.leastGrace" -}}
{{- add (include "ckd.preStop" .) (include "ckd.seconds" (index .Values.settings "shutdown-grace")) 5 -}}
{{- end -}}

{{/* ckd.terminationGrace adds the 30 s of a model server, which stops first. */}}
{{- define "ckd.terminationGrace" -}}
{{- $given := .Values.terminationGracePeriodSeconds | int64 | default (add (include "ckd.leastGrace" .) (ternary 5 30 (include "ckd.alone" . | eq "true"))) -}}
{{- max $given (include "ckd.leastGrace" . | int64) -}}
{{- end -}}
