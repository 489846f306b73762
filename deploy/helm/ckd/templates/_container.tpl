{{/* ckd.container is the daemon's container, without how it is probed at its start, and how it restarts. */}}
{{- define "ckd.container" -}}
{{- include "ckd.check" . -}}
{{- $alone := eq .Values.mode "deployment" -}}
{{- $tls := include "ckd.tlsSecret" . -}}
name: ckd
image: {{ include "ckd.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config=/etc/ckd/settings/ckd.yaml]
{{- with .Values.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
{{- if $alone }}
  - {name: grpc, containerPort: 8590, protocol: TCP}
  {{- if .Values.http.enabled }}
  - {name: http, containerPort: 8591, protocol: TCP}
  {{- end }}
{{- end }}
  - {name: {{ include "ckd.adminPort" . }}, containerPort: 9590, protocol: TCP}
# Beside a model server: it starts when this one is ready.
startupProbe:
  httpGet: {{- include "ckd.probe" (list . "/readyz") | nindent 4 }}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {{- include "ckd.probe" (list . "/readyz") | nindent 4 }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {{- include "ckd.probe" (list . "/livez") | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- with int (include "ckd.preStop" .) }}
lifecycle:
  preStop:
    sleep: {seconds: {{ . }}}
{{- end }}
resources: {{- include "ckd.resources" . | nindent 2 }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: ckd-settings, mountPath: /etc/ckd/settings, readOnly: true}
  # The folder, not a file in it: Kubernetes does not bring changes to a subPath.
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
{{- if not $alone }}
  - {name: ckd-socket, mountPath: /run/ckd}
{{- end }}
{{- end -}}

{{/* ckd.resources is what is given, and the memory that follows from the settings where none is. */}}
{{- define "ckd.resources" -}}
{{- $limits := deepCopy (.Values.resources.limits | default dict) -}}
{{- $requests := deepCopy (.Values.resources.requests | default dict) -}}
{{- if not $requests.memory -}}
{{- /* A request over the limit would be refused: a limit that is given is the request, too. */ -}}
{{- $_ := set $requests "memory" ($limits.memory | default (printf "%sMi" (include "ckd.memoryRequest" .))) -}}
{{- end -}}
{{- if not $limits.memory -}}
{{- $_ := set $limits "memory" (printf "%sMi" (include "ckd.memoryLimit" .)) -}}
{{- end -}}
{{- dict "requests" $requests "limits" $limits | toYaml -}}
{{- end -}}

{{/* In somebody else's pod the port has a name that no other has. */}}
{{- define "ckd.adminPort" -}}
{{- ternary "admin" "ckd-admin" (eq .Values.mode "deployment") -}}
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
ckd.volumes is what the container mounts. For the pod of a model server, with this chart as the dependency "ckd":
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
{{- if ne .Values.mode "deployment" }}
- name: ckd-socket
  emptyDir: {sizeLimit: 1Mi}
{{- end }}
{{- end -}}

{{/*
ckd.secretMode keeps Secrets from other users. Where the pod has no fsGroup they are root's, and the daemon could not read
them so; a pod of somebody else's has its own.
*/}}
{{- define "ckd.secretMode" -}}
{{- if and (ne .Values.mode "library") (.Values.podSecurityContext).fsGroup -}}
, defaultMode: 0440
{{- end -}}
{{- end -}}

{{/*
ckd.sidecar is ckd as a native sidecar: an init container that stays. The model server starts when it is ready, and it
outlives the model server.
    initContainers: {{- include "ckd.sidecar" .Subcharts.ckd | nindent 8 }}
*/}}
{{- define "ckd.sidecar" -}}
{{- if eq .Values.mode "deployment" -}}
{{- fail "ckd.sidecar: expected mode sidecar or library" -}}
{{- end -}}
- restartPolicy: Always
  {{- include "ckd.container" . | nindent 2 }}
{{- end -}}

{{/* ckd.socket is the mount of the model server's container. */}}
{{- define "ckd.socket" -}}
- {name: ckd-socket, mountPath: /run/ckd}
{{- end -}}

{{/* ckd.sidecarLabels is what the PodMonitor finds such a pod by. */}}
{{- define "ckd.sidecarLabels" -}}
ckd/sidecar: "true"
{{- end -}}

{{/* ckd.checksum is of what a pod must restart for: settings, but neither policies, certificates nor the access file. */}}
{{- define "ckd.checksum" -}}
{{- include "ckd.settings" . | sha256sum -}}
{{- end -}}
