{{/*
ckd.check fails where values contradict each other in ways that a schema does not tell, or would make what Kubernetes
refuses. Names, whose shape a schema could tell, are here for the message: it says what was expected.
*/}}
{{- define "ckd.check" -}}
{{- include "ckd.checkTogether" . -}}
{{- include "ckd.checkNames" . -}}
{{- include "ckd.checkLabels" . -}}
{{- include "ckd.checkPolicies" . -}}
{{- include "ckd.checkNumbers" . -}}
{{- include "ckd.checkResources" . -}}
{{- if eq .Values.mode "sidecar" -}}
{{- include "ckd.checkServer" . -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkTogether: values that go together, and that do not. */}}
{{- define "ckd.checkTogether" -}}
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
{{- end -}}

{{/* ckd.checkNames: names as Kubernetes takes them, of objects that the chart makes, and of those that it finds. */}}
{{- define "ckd.checkNames" -}}
{{- $v := .Values -}}
{{- $of := "the name of the release" -}}
{{- if $v.fullnameOverride -}}
{{- $of = "fullnameOverride" -}}
{{- else if $v.nameOverride -}}
{{- $of = "nameOverride, with the name of the release" -}}
{{- end -}}
{{- $name := include "ckd.fullname" . -}}
{{- if and (eq $v.mode "deployment") (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "%s: %q would be the name of the Service, expected a DNS-1035 label: at most 63 of a-z, 0-9 and -, the first a letter, the last no -" $of $name) -}}
{{- end -}}
{{- range list
      (list $of $name)
      (list "serviceAccount.name" $v.serviceAccount.name)
      (list "priorityClassName" $v.priorityClassName)
      (list "policiesConfigMap" $v.policiesConfigMap)
      (list "access.existingSecret" $v.access.existingSecret)
      (list "tls.existingSecret" $v.tls.existingSecret)
      (list "tls.clientCA.existingSecret" $v.tls.clientCA.existingSecret)
      (list "tls.certManager.issuerRef.name" $v.tls.certManager.issuerRef.name) -}}
{{- $given := index . 1 -}}
{{- if and $given (not (include "ckd.isSubdomain" $given)) -}}
{{- fail (printf "%s: %q, %s" (index . 0) $given (include "ckd.asSubdomain" $)) -}}
{{- end -}}
{{- end -}}
{{- range $i, $secret := $v.imagePullSecrets -}}
{{- if not (include "ckd.isSubdomain" $secret.name) -}}
{{- fail (printf "imagePullSecrets[%d].name: %q, %s" $i $secret.name (include "ckd.asSubdomain" $)) -}}
{{- end -}}
{{- end -}}
{{- range $i, $namespace := $v.podMonitor.namespaces -}}
{{- if not (include "ckd.isLabel" $namespace) -}}
{{- fail (printf "podMonitor.namespaces[%d]: %q, %s" $i $namespace (include "ckd.asLabel" $)) -}}
{{- end -}}
{{- end -}}
{{- if not (include "ckd.isLabelValue" (include "ckd.name" .)) -}}
{{- fail (printf "nameOverride: %q would be the label app.kubernetes.io/name, %s" $v.nameOverride (include "ckd.asLabelValue" .)) -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkLabels: keys and values of labels and annotations. */}}
{{- define "ckd.checkLabels" -}}
{{- $v := .Values -}}
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
{{- $labels := dict
      "commonLabels" $common "podLabels" $v.podLabels "nodeSelector" $v.nodeSelector
      "serviceMonitor.labels" $v.serviceMonitor.labels "podMonitor.labels" $v.podMonitor.labels
      "prometheusRule.labels" $v.prometheusRule.labels "dashboards.labels" $v.dashboards.labels -}}
{{- range $value, $map := $labels -}}
{{- range $key, $text := $map -}}
{{- if not (include "ckd.isKey" $key) -}}
{{- fail (printf "%s: %q, %s" $value $key (include "ckd.asKey" $)) -}}
{{- end -}}
{{- if not (include "ckd.isLabelValue" $text) -}}
{{- fail (printf "%s: %s: %q, %s" $value $key $text (include "ckd.asLabelValue" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $annotations := dict
      "podAnnotations" $v.podAnnotations "service.annotations" $v.service.annotations
      "serviceAccount.annotations" $v.serviceAccount.annotations "dashboards.annotations" $v.dashboards.annotations -}}
{{- range $value, $map := $annotations -}}
{{- range $key, $_ := $map -}}
{{- if not (include "ckd.isKey" (lower $key)) -}}
{{- fail (printf "%s: %q, %s" $value $key (include "ckd.asKey" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkPolicies: files of a ConfigMap that the daemon reads, and the size of one. */}}
{{- define "ckd.checkPolicies" -}}
{{- $bytes := 0 -}}
{{- range $file, $text := .Values.policies -}}
{{- if not (kindIs "string" $text) -}}
{{- fail (printf "policies: %q: expected the text of a file; --set takes the dot of a file's name as \\." $file) -}}
{{- end -}}
{{- if not (regexMatch "^[A-Za-z0-9][-._A-Za-z0-9]*[.]ya?ml$" $file) -}}
{{- fail (printf "policies: %q: expected a name that ends in .yaml or .yml, of letters, digits, -, _ and ." $file) -}}
{{- end -}}
{{- if gt (len $file) 253 -}}
{{- fail (printf "policies: %q: expected a name of at most 253 characters" $file) -}}
{{- end -}}
{{- if include "ckd.isBlank" $text -}}
{{- fail (printf "policies: %q: empty, or only comments, expected the text of a policy file, as --set-file reads it; leave policies out to serve the example" $file) -}}
{{- end -}}
{{- $bytes = add $bytes (len $text) -}}
{{- end -}}
{{- if gt $bytes 1048576 -}}
{{- fail (printf "policies: %d bytes, expected 1048576 at most, which is what a ConfigMap takes: give large models releases of their own" $bytes) -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkNumbers: numbers that bound each other. */}}
{{- define "ckd.checkNumbers" -}}
{{- $v := .Values -}}
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
{{- $rolling := $v.updateStrategy.rollingUpdate | default dict -}}
{{- $none := list "0" "0%" -}}
{{- if and (eq $v.updateStrategy.type "RollingUpdate") (has (toString $rolling.maxSurge) $none) (has (toString $rolling.maxUnavailable) $none) -}}
{{- fail "updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so that no replica could ever be updated, expected one of them above" -}}
{{- end -}}
{{- $certificate := $v.tls.certManager -}}
{{- if $certificate.enabled -}}
{{- $lives := int (include "ckd.seconds" $certificate.duration) -}}
{{- $before := int (include "ckd.seconds" $certificate.renewBefore) -}}
{{- if lt $lives 3600 -}}
{{- fail (printf "tls.certManager.duration: %s, expected 1h at least, of which cert-manager makes certificates" $certificate.duration) -}}
{{- end -}}
{{- if or (lt $before 300) (ge $before $lives) -}}
{{- fail (printf "tls.certManager.renewBefore: %s, expected 5m at least and less than duration, %s" $certificate.renewBefore $certificate.duration) -}}
{{- end -}}
{{- end -}}
{{- range $setting := list "trace-endpoint" "pprof" -}}
{{- $address := index $v.settings $setting | default "off" -}}
{{- if gt (regexFind "[0-9]+$" $address | int) 65535 -}}
{{- fail (printf "settings.%s: %s: no such port, expected 65535 at most" $setting $address) -}}
{{- end -}}
{{- end -}}
{{- /* Of more the sum that makes the limit of memory would overflow. */ -}}
{{- if gt (float64 (index $v.settings "max-open-bytes")) 1099511627776.0 -}}
{{- fail (printf "settings.max-open-bytes: %.0f, expected 1099511627776, a tebibyte, at most" (float64 (index $v.settings "max-open-bytes"))) -}}
{{- end -}}
{{- with $v.terminationGracePeriodSeconds -}}
{{- if lt (int .) (int (include "ckd.leastGrace" $)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short for preStopSleepSeconds and shutdown-grace, expected %s at least" (int .) (include "ckd.leastGrace" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkResources: no request above its limit, and no memory whose unit was forgotten. */}}
{{- define "ckd.checkResources" -}}
{{- $server := .Values.sidecar.container.resources | default dict -}}
{{- range $value, $resources := dict "resources" (include "ckd.resources" . | fromYaml) "sidecar.container.resources" $server -}}
{{- $limits := $resources.limits | default dict -}}
{{- range $kind, $given := dict "requests" $resources.requests "limits" $limits -}}
{{- $memory := include "ckd.quantity" (dig "memory" "" ($given | default dict)) -}}
{{- if and $memory (lt (float64 $memory) 16777216.0) -}}
{{- fail (printf "%s.%s.memory: %s is %s bytes, expected 16Mi at least" $value $kind (toString $given.memory) $memory) -}}
{{- end -}}
{{- end -}}
{{- range $resource, $request := $resources.requests -}}
{{- $limit := get $limits $resource -}}
{{- $asked := include "ckd.quantity" $request -}}
{{- $most := include "ckd.quantity" $limit -}}
{{- if and $asked $most (gt (float64 $asked) (float64 $most)) -}}
{{- fail (printf "%s.requests.%s: %s is above %s.limits.%s, %s%s, expected no more" $value $resource (toString $request) $value $resource (toString $limit)
      (ternary " by the settings" "" (and (eq $value "resources") (not (hasKey ($.Values.resources.limits | default dict) $resource))))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ckd.checkServer: the model server's container and volumes, beside those of the chart. */}}
{{- define "ckd.checkServer" -}}
{{- $server := .Values.sidecar.container -}}
{{- if not $server.name -}}
{{- fail "sidecar.container.name: none given, expected a name such as server" -}}
{{- end -}}
{{- if not (include "ckd.isLabel" $server.name) -}}
{{- fail (printf "sidecar.container.name: %q, %s" $server.name (include "ckd.asLabel" .)) -}}
{{- end -}}
{{- if eq $server.name "ckd" -}}
{{- fail "sidecar.container.name: \"ckd\" is the daemon's container, expected another name" -}}
{{- end -}}
{{- if not $server.image -}}
{{- fail "sidecar.container.image: none given, expected the image of your model server" -}}
{{- end -}}
{{- $volumes := list -}}
{{- range include "ckd.volumes" . | fromYamlArray -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- range $i, $volume := .Values.sidecar.volumes -}}
{{- if not (include "ckd.isLabel" $volume.name) -}}
{{- fail (printf "sidecar.volumes[%d].name: %q, %s" $i $volume.name (include "ckd.asLabel" $)) -}}
{{- end -}}
{{- if has $volume.name $volumes -}}
{{- fail (printf "sidecar.volumes[%d].name: %q is another volume of the pod, expected a name of its own" $i $volume.name) -}}
{{- end -}}
{{- $volumes = append $volumes $volume.name -}}
{{- end -}}
{{- $paths := list "/run/ckd" -}}
{{- range $i, $mount := $server.volumeMounts -}}
{{- $path := clean $mount.mountPath -}}
{{- if eq $path "/run/ckd" -}}
{{- fail (printf "sidecar.container.volumeMounts[%d].mountPath: %s is the folder of the socket, which the chart mounts: expected another" $i $mount.mountPath) -}}
{{- end -}}
{{- if has $path $paths -}}
{{- fail (printf "sidecar.container.volumeMounts[%d].mountPath: %s is mounted twice, expected another" $i $mount.mountPath) -}}
{{- end -}}
{{- if not (has $mount.name $volumes) -}}
{{- fail (printf "sidecar.container.volumeMounts[%d].name: no volume %q, expected one of sidecar.volumes" $i $mount.name) -}}
{{- end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- $taken := dict "9590" "its admin port" -}}
{{- if .Values.sidecar.loopback -}}
{{- $_ := set $taken "8590" "sidecar.loopback" -}}
{{- end -}}
{{- if .Values.http.enabled -}}
{{- $_ := set $taken "8591" "http.enabled" -}}
{{- end -}}
{{- $names := list -}}
{{- range $i, $port := $server.ports -}}
{{- $number := int $port.containerPort | toString -}}
{{- if and (hasKey $taken $number) (eq ($port.protocol | default "TCP") "TCP") -}}
{{- fail (printf "sidecar.container.ports[%d].containerPort: %s is ckd's in this pod, %s, expected another" $i $number (get $taken $number)) -}}
{{- end -}}
{{- if has $port.name (append $names "ckd-admin") -}}
{{- fail (printf "sidecar.container.ports[%d].name: %q is another port of the pod, expected a name of its own" $i $port.name) -}}
{{- end -}}
{{- if $port.name -}}
{{- $names = append $names $port.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
