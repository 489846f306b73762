{{/*
ckd.check fails on values that would start a daemon that cannot work, or that would be ignored without a word. Names, labels,
quantities and everything else that Kubernetes checks is left to Kubernetes.
*/}}
{{- define "ckd.check" -}}
{{- include "ckd.checkMode" . -}}
{{- include "ckd.checkSecurity" . -}}
{{- include "ckd.checkExposure" . -}}
{{- include "ckd.checkPolicies" . -}}
{{- include "ckd.checkReplicas" . -}}
{{- include "ckd.checkSettings" . -}}
{{- include "ckd.checkMemory" . -}}
{{- end -}}

{{/* ckd.checkMode checks that values belong to the mode, and that ckd finds its ports free beside a model server. */}}
{{- define "ckd.checkMode" -}}
{{- $v := .Values -}}
{{- if and (include "ckd.alone" . | ne "true") (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "mode %s: native sidecars need Kubernetes 1.29, this is %s" $v.mode .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq $v.mode "sidecar") (not $v.sidecar.container) -}}
{{- fail "mode sidecar: sidecar.container: none given, expected the container of your model server" -}}
{{- end -}}
{{- if and (ne $v.mode "sidecar") $v.sidecar.container -}}
{{- fail (printf "mode %s: sidecar.container is for mode sidecar" $v.mode) -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (ne $v.mode "deployment") -}}
{{- fail (printf "mode %s: autoscaling is for mode deployment: a sidecar scales with its model server" $v.mode) -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (include "ckd.alone" . | ne "true") -}}
{{- fail (printf "mode %s: serviceMonitor is for mode deployment, expected podMonitor" $v.mode) -}}
{{- end -}}
{{- if and $v.podMonitor.enabled (include "ckd.alone" . | eq "true") -}}
{{- fail "mode deployment: podMonitor is for modes sidecar and library, expected serviceMonitor" -}}
{{- end -}}
{{- if and (eq $v.mode "ledger") (not $v.receipts.existingSecret) -}}
{{- fail "mode ledger: receipts.existingSecret: none given, expected the keys of receipts, to open them" -}}
{{- end -}}
{{- if and (eq $v.mode "ledger") $v.ledger.at -}}
{{- fail "mode ledger: ledger.at is for the other modes: this release is the ledger" -}}
{{- end -}}
{{- if and $v.ledger.at (include "ckd.alone" . | ne "true") (not (include "ckd.tlsSecret" .)) -}}
{{- fail (printf "mode %s: ledger.at: what is issued would be told in plaintext, expected tls.existingSecret, whose ca.crt the ledger's certificate is from" $v.mode) -}}
{{- end -}}
{{- if and $v.ledger.tokenKey (not (and $v.ledger.at $v.access.existingSecret)) -}}
{{- fail "ledger.tokenKey needs ledger.at and access.existingSecret, the Secret with the token" -}}
{{- end -}}
{{- if eq $v.mode "sidecar" -}}
{{- $taken := dict "9590" "the admin port" -}}
{{- if $v.sidecar.loopback -}}
{{- $_ := set $taken "8590" "sidecar.loopback" -}}
{{- end -}}
{{- if $v.http.enabled -}}
{{- $_ := set $taken "8591" "http.enabled" -}}
{{- end -}}
{{- range $i, $port := $v.sidecar.container.ports -}}
{{- $number := int $port.containerPort | toString -}}
{{- if and (hasKey $taken $number) (eq ($port.protocol | default "TCP") "TCP") -}}
{{- fail (printf "sidecar.container.ports[%d].containerPort: ckd listens on %s in this pod (%s), expected another port" $i $number (get $taken $number)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkSecurity checks that certificates are complete, and that the admin port shows and changes nothing without them. */}}
{{- define "ckd.checkSecurity" -}}
{{- $v := .Values -}}
{{- if and $v.tls.existingSecret $v.tls.certManager.enabled -}}
{{- fail "tls.existingSecret and tls.certManager.enabled: both given, expected one" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: none given, expected the name of an issuer" -}}
{{- end -}}
{{- if and (not (include "ckd.tlsSecret" .)) (or $v.tls.admin $v.tls.clientCA.existingSecret) -}}
{{- fail "tls.admin and tls.clientCA need tls.existingSecret or tls.certManager" -}}
{{- end -}}
{{- if and $v.tls.clientCA.crlKey (not $v.tls.clientCA.existingSecret) -}}
{{- fail "tls.clientCA.crlKey needs tls.clientCA.existingSecret" -}}
{{- end -}}
{{- if not (and $v.tls.admin $v.access.existingSecret) -}}
{{- if index $v.settings "admin-reload" -}}
{{- fail "settings.admin-reload: anybody who reaches the admin port could reload the policies, expected tls.admin and access.existingSecret" -}}
{{- end -}}
{{- if index $v.settings "recent-inputs" -}}
{{- fail "settings.recent-inputs: anybody who reaches the admin port would see ids of inputs, expected tls.admin and access.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
ckd.checkExposure checks that who calls from outside the cluster does so by an identity, and not in plaintext. What a Gateway
does with TLS is not seen from here.
*/}}
{{- define "ckd.checkExposure" -}}
{{- $v := .Values -}}
{{- $ways := dict "service.type" (ne $v.service.type "ClusterIP") "ingress" $v.ingress.enabled "grpcRoute" $v.grpcRoute.enabled "httpRoute" $v.httpRoute.enabled -}}
{{- range $way, $on := $ways -}}
{{- if and $on (include "ckd.alone" $ | ne "true") -}}
{{- fail (printf "mode %s: %s is for modes deployment and ledger, which have a Service" $v.mode $way) -}}
{{- end -}}
{{- if and $on (not $v.access.existingSecret) (or (ne $way "service.type") (not $v.tls.clientCA.existingSecret)) -}}
{{- fail (printf "%s: anybody outside the cluster could call, expected access.existingSecret%s" $way (ternary ", or tls.clientCA.existingSecret" "" (eq $way "service.type"))) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $v.service.type "ClusterIP") (not (include "ckd.tlsSecret" .)) -}}
{{- fail (printf "service.type: %s without TLS: passes and tokens would leave the cluster in plaintext, expected tls.existingSecret or tls.certManager" $v.service.type) -}}
{{- end -}}
{{- if $v.ingress.enabled -}}
{{- if not $v.ingress.hosts -}}
{{- fail "ingress.hosts: none given, expected at least one host" -}}
{{- end -}}
{{- if not $v.ingress.tls -}}
{{- fail "ingress.tls: none given: passes and tokens would reach the cluster in plaintext, expected hosts with their Secret" -}}
{{- end -}}
{{- end -}}
{{- range $way := list "grpcRoute" "httpRoute" -}}
{{- $route := index $v $way -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- fail (printf "%s.parentRefs: none given, expected a Gateway" $way) -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.http.enabled) (or $v.httpRoute.enabled (and $v.ingress.enabled (eq $v.ingress.port "http"))) -}}
{{- fail "ingress and httpRoute lead to the API over HTTP, expected http.enabled, or ingress.port: grpc" -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkPolicies checks that the daemon finds models in every file. What a model says is for `ckd check`. */}}
{{- define "ckd.checkPolicies" -}}
{{- if and .Values.policies .Values.policiesConfigMap -}}
{{- fail "policies and policiesConfigMap: both given, expected one" -}}
{{- end -}}
{{- range $file, $text := .Values.policies -}}
{{- if not (kindIs "string" $text) -}}
{{- fail (printf "policies: %q: expected the text of a file; --set takes the dot of a file's name as \\." $file) -}}
{{- end -}}
{{- if not (regexMatch "^[^.].*[.]ya?ml$" $file) -}}
{{- fail (printf "policies: %q: expected a name that ends in .yaml or .yml: the daemon reads no other files" $file) -}}
{{- end -}}
{{- if include "ckd.isBlank" $text -}}
{{- fail (printf "policies: %q: empty, or only comments, expected the text of a policy file, as --set-file reads it; leave policies out to serve the example" $file) -}}
{{- end -}}
{{- $policy := fromYaml $text -}}
{{- if and $policy.Error (not $policy.models) -}}
{{- fail (printf "policies: %q: expected a mapping with a list of models: %s" $file $policy.Error) -}}
{{- end -}}
{{- if not (and (kindIs "slice" $policy.models) $policy.models) -}}
{{- fail (printf "policies: %q: models: expected a list of at least one model" $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkReplicas checks that the autoscaler has a target, and that nodes can be drained. */}}
{{- define "ckd.checkReplicas" -}}
{{- $v := .Values -}}
{{- if $v.autoscaling.enabled -}}
{{- $cpu := $v.autoscaling.targetCPUUtilizationPercentage -}}
{{- if not (or $cpu $v.autoscaling.targetInputsOpen) -}}
{{- fail "autoscaling: no target, expected targetCPUUtilizationPercentage or targetInputsOpen" -}}
{{- end -}}
{{- if and $cpu (not (dig "requests" "cpu" "" $v.resources)) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage is a share of resources.requests.cpu, which is not given" -}}
{{- end -}}
{{- end -}}
{{- $pdb := $v.podDisruptionBudget -}}
{{- if $pdb.enabled -}}
{{- if eq (eq (toString $pdb.maxUnavailable) "") (eq (toString $pdb.minAvailable) "") -}}
{{- fail "podDisruptionBudget: expected one of maxUnavailable and minAvailable; make the other \"\"" -}}
{{- end -}}
{{- $least := int (include "ckd.leastReplicas" .) -}}
{{- if gt $least 1 -}}
{{- if and (ne (toString $pdb.minAvailable) "") (ge (int (include "ckd.pods" (list $pdb.minAvailable $least))) $least) -}}
{{- fail "podDisruptionBudget.minAvailable is all replicas: no node could ever be drained" -}}
{{- end -}}
{{- if has (toString $pdb.maxUnavailable) (list "0" "0%") -}}
{{- fail "podDisruptionBudget.maxUnavailable is no replica: no node could ever be drained" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkSettings checks ports that the daemon would refuse, and that it has the time to stop. */}}
{{- define "ckd.checkSettings" -}}
{{- range $setting := list "trace-endpoint" "pprof" -}}
{{- $address := index $.Values.settings $setting | default "off" -}}
{{- if gt (regexFind "[0-9]+$" $address | int) 65535 -}}
{{- fail (printf "settings.%s: %s: no such port, expected at most 65535" $setting $address) -}}
{{- end -}}
{{- end -}}
{{- with .Values.terminationGracePeriodSeconds -}}
{{- if lt (int .) (int (include "ckd.leastGrace" $)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short for preStopSleepSeconds and shutdown-grace, expected at least %s" (int .) (include "ckd.leastGrace" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkMemory checks that memory has its unit: a daemon with 512 bytes is killed at its start. */}}
{{- define "ckd.checkMemory" -}}
{{- /* Beyond this the sum that makes the limit of memory would overflow. */ -}}
{{- if gt (float64 (index .Values.settings "max-open-bytes")) 1099511627776.0 -}}
{{- fail (printf "settings.max-open-bytes: %.0f, expected at most 1099511627776 (1 TiB)" (float64 (index .Values.settings "max-open-bytes"))) -}}
{{- end -}}
{{- range $kind := list "requests" "limits" -}}
{{- $memory := dig $kind "memory" "" $.Values.resources -}}
{{- $text := ternary $memory (toJson $memory) (kindIs "string" $memory) -}}
{{- $unit := regexFind "[a-zA-Z]*$" $text -}}
{{- if and $memory (or (eq $unit "m") (and (eq $unit "") (lt (float64 $text) 16777216.0))) -}}
{{- fail (printf "resources.%s.memory: %s has no unit of memory, expected at least 16Mi" $kind $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}
