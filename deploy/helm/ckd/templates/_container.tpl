{{/* ckd.container renders the daemon's container. */}}
{{- define "ckd.container" -}}
{{- $alone := include "ckd.alone" . | eq "true" -}}
{{- $tls := include "ckd.tlsSecret" . -}}
name: ckd
image: {{ include "ckd.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config=/etc/ckd/settings/ckd.yaml]
{{- with .Values.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
{{- if $alone }}
  - {name: grpc, containerPort: 8590, protocol: TCP}
  {{- if .Values.http.enabled }}
  - {name: http, containerPort: 8591, protocol: TCP}
  {{- end }}
{{- end }}
  - {name: {{ include "ckd.adminPort" . }}, containerPort: 9590, protocol: TCP}
# A model server beside it starts once this probe succeeds.
startupProbe:
  httpGet: {{- include "ckd.probe" (list . "/readyz") | nindent 4 }}
  {{- toYaml .Values.startupProbe | nindent 2 }}
{{- with .Values.readinessProbe }}
readinessProbe:
  httpGet: {{- include "ckd.probe" (list $ "/readyz") | nindent 4 }}
  {{- toYaml . | nindent 2 }}
{{- end }}
livenessProbe:
  httpGet: {{- include "ckd.probe" (list . "/livez") | nindent 4 }}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
{{- with int (include "ckd.preStop" .) }}
lifecycle:
  preStop:
    sleep: {seconds: {{ . }}}
{{- end }}
resources: {{- include "ckd.resources" . | nindent 2 }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: ckd-settings, mountPath: /etc/ckd/settings, readOnly: true}
  # The whole folder: Kubernetes does not update a subPath.
  - {name: ckd-policies, mountPath: /etc/ckd/policies, readOnly: true}
{{- if $tls }}
  - {name: ckd-tls, mountPath: /etc/ckd/tls, readOnly: true}
{{- end }}
{{- if .Values.tls.clientCA.existingSecret }}
  - {name: ckd-client-ca, mountPath: /etc/ckd/client-ca, readOnly: true}
{{- end }}
{{- if .Values.access.existingSecret }}
  - {name: ckd-access, mountPath: /etc/ckd/access, readOnly: true}
{{- end }}
{{- if .Values.receipts.existingSecret }}
  - {name: ckd-receipts, mountPath: /etc/ckd/receipts, readOnly: true}
{{- end }}
{{- if eq .Values.mode "ledger" }}
  - {name: ckd-ledger, mountPath: /var/lib/ckd}
{{- else if .Values.ledger.at }}
  # What the ledger said last, for a restart while it is away.
  - {name: ckd-state, mountPath: /var/lib/ckd}
{{- end }}
{{- if not $alone }}
  - {name: ckd-socket, mountPath: /run/ckd}
{{- end }}
{{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* ckd.resources renders the given resources. Memory that is not given depends on the settings. */}}
{{- define "ckd.resources" -}}
{{- $limits := deepCopy (.Values.resources.limits | default dict) -}}
{{- $requests := deepCopy (.Values.resources.requests | default dict) -}}
{{- if not $requests.memory -}}
{{- /* Kubernetes refuses a request above the limit, so a given limit is the request too. */ -}}
{{- $_ := set $requests "memory" ($limits.memory | default (printf "%sMi" (include "ckd.memoryRequest" .))) -}}
{{- end -}}
{{- if not $limits.memory -}}
{{- $_ := set $limits "memory" (printf "%sMi" (include "ckd.memoryLimit" .)) -}}
{{- end -}}
{{- dict "requests" $requests "limits" $limits | toYaml -}}
{{- end -}}

{{/* ckd.adminPort renders the name of the admin port, which must be unique in the pod of a model server. */}}
{{- define "ckd.adminPort" -}}
{{- ternary "admin" "ckd-admin" (include "ckd.alone" . | eq "true") -}}
{{- end -}}

{{- define "ckd.probe" -}}
{{- $c := index . 0 -}}
path: {{ index . 1 }}
port: {{ include "ckd.adminPort" $c }}
{{- if $c.Values.tls.admin }}
scheme: HTTPS
{{- end }}
{{- end -}}

{{/*
ckd.volumes renders the volumes of the container. In the pod of a model server, with this chart as the dependency "ckd":
    volumes: {{- include "ckd.volumes" .Subcharts.ckd | nindent 8 }}
*/}}
{{- define "ckd.volumes" -}}
- name: ckd-settings
  configMap: {name: {{ include "ckd.fullname" . }}-settings}
- name: ckd-policies
  configMap: {name: {{ include "ckd.policiesConfigMap" . | quote }}}
{{- with include "ckd.tlsSecret" . }}
- name: ckd-tls
  secret: {secretName: {{ . | quote }}{{ include "ckd.secretMode" $ }}}
{{- end }}
{{- with .Values.tls.clientCA.existingSecret }}
- name: ckd-client-ca
  secret: {secretName: {{ . | quote }}{{ include "ckd.secretMode" $ }}}
{{- end }}
{{- with .Values.access.existingSecret }}
- name: ckd-access
  secret: {secretName: {{ . | quote }}{{ include "ckd.secretMode" $ }}}
{{- end }}
{{- with .Values.receipts.existingSecret }}
- name: ckd-receipts
  secret: {secretName: {{ . | quote }}{{ include "ckd.secretMode" $ }}}
{{- end }}
{{- if .Values.ledger.at }}
- name: ckd-state
  emptyDir: {sizeLimit: 16Mi}
{{- end }}
{{- if include "ckd.alone" . | ne "true" }}
- name: ckd-socket
  emptyDir: {sizeLimit: 1Mi}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
ckd.secretMode keeps Secrets from other users. Without an fsGroup they belong to root, and the daemon could not read them
with this mode. A pod that includes these templates has a securityContext of its own.
*/}}
{{- define "ckd.secretMode" -}}
{{- if and (ne .Values.mode "library") (.Values.podSecurityContext).fsGroup -}}
, defaultMode: 0440
{{- end -}}
{{- end -}}

{{/*
ckd.sidecar renders ckd as a native sidecar, an init container that keeps running. The model server starts once it is
ready, and stops before it.
    initContainers: {{- include "ckd.sidecar" .Subcharts.ckd | nindent 8 }}
*/}}
{{- define "ckd.sidecar" -}}
{{- if include "ckd.alone" . | eq "true" -}}
{{- fail "ckd.sidecar: expected mode sidecar or library" -}}
{{- end -}}
- restartPolicy: Always
  {{- include "ckd.container" . | nindent 2 }}
{{- end -}}

{{/* ckd.socket renders the mount for the model server's container. */}}
{{- define "ckd.socket" -}}
- {name: ckd-socket, mountPath: /run/ckd}
{{- end -}}

{{/* ckd.sidecarLabels renders the label by which the PodMonitor finds pods with a sidecar. */}}
{{- define "ckd.sidecarLabels" -}}
ckd/sidecar: "true"
{{- end -}}

{{/* ckd.checksum covers the settings, for which pods must restart. The daemon reloads policies, certificates and access files. */}}
{{- define "ckd.checksum" -}}
{{- include "ckd.settings" . | sha256sum -}}
{{- end -}}
