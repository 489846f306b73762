{{/*
ckd.settings renders the file of settings: the user's, and those that depend on other values. Values are JSON, so that
large numbers stay integers.
*/}}
{{- define "ckd.settings" -}}
{{- $v := .Values -}}
{{- $alone := include "ckd.alone" . | eq "true" -}}
{{- $tls := include "ckd.tlsSecret" . -}}
{{- $all := deepCopy $v.settings -}}
{{- if and $alone (not (hasKey $all "max-stream-age")) -}}
{{- $_ := set $all "max-stream-age" "10m" -}}
{{- end -}}
{{- $_ := set $all "policy" (list "/etc/ckd/policies") -}}
{{- $_ := set $all "admin" ":9590" -}}
{{- if $alone -}}
{{- $_ := set $all "listen" (list ":8590") -}}
{{- $_ := set $all "http" (ternary ":8591" "off" $v.http.enabled) -}}
{{- if not $tls -}}
{{- $_ := set $all "insecure-plaintext" true -}}
{{- end -}}
{{- else -}}
{{- $listen := list "unix:/run/ckd/ckd.sock" -}}
{{- if $v.sidecar.loopback -}}
{{- $listen = append $listen "127.0.0.1:8590" -}}
{{- end -}}
{{- $_ := set $all "listen" $listen -}}
{{- $_ := set $all "http" (ternary "127.0.0.1:8591" "off" $v.http.enabled) -}}
{{- end -}}
{{- if $tls -}}
{{- $_ := set $all "tls-cert" "/etc/ckd/tls/tls.crt" -}}
{{- $_ := set $all "tls-key" "/etc/ckd/tls/tls.key" -}}
{{- if $v.tls.admin -}}
{{- $_ := set $all "admin-tls" true -}}
{{- end -}}
{{- if $v.tls.clientCA.existingSecret -}}
{{- $_ := set $all "tls-client-ca" (printf "/etc/ckd/client-ca/%s" $v.tls.clientCA.key) -}}
{{- with $v.tls.clientCA.crlKey -}}
{{- $_ := set $all "tls-crl" (printf "/etc/ckd/client-ca/%s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.access.existingSecret -}}
{{- $_ := set $all "access" (printf "/etc/ckd/access/%s" $v.access.key) -}}
{{- end -}}
{{- if $v.receipts.existingSecret -}}
{{- $_ := set $all "receipt-keys" (printf "/etc/ckd/receipts/%s" $v.receipts.key) -}}
{{- end -}}
{{- if eq $v.mode "ledger" -}}
{{- $_ := set $all "ledger" "/var/lib/ckd/ledger" -}}
{{- $_ := set $all "ledger-state" "/var/lib/ckd/ledger-state.json" -}}
{{- end -}}
{{- if $v.ledger.at -}}
{{- $_ := set $all "ledger-at" $v.ledger.at -}}
{{- $_ := set $all "ledger-state" "/var/lib/ckd/ledger-state.json" -}}
{{- if $tls -}}
{{- $_ := set $all "ledger-ca" "/etc/ckd/tls/ca.crt" -}}
{{- end -}}
{{- with $v.ledger.tokenKey -}}
{{- $_ := set $all "ledger-token" (printf "/etc/ckd/access/%s" .) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $all -}}
{{ $name }}: {{ $value | toJson }}
{{ end -}}
{{- end -}}
