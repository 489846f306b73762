{{/* Shapes of names and numbers: is... is "true" or nothing, as... is how a message says what was expected. */}}

{{- define "ckd.isLabel" -}}
{{- if regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" . -}}true{{- end -}}
{{- end -}}

{{- define "ckd.asLabel" -}}
expected a DNS-1123 label: at most 63 of a-z, 0-9 and -, with a letter or digit at either end
{{- end -}}

{{- define "ckd.isSubdomain" -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- if and (le (len .) 253) (regexMatch (printf "^%s([.]%s)*$" $label $label) .) -}}true{{- end -}}
{{- end -}}

{{- define "ckd.asSubdomain" -}}
expected a DNS-1123 subdomain: at most 253 of a-z, 0-9, - and ., with a letter or digit at either end of each part
{{- end -}}

{{- define "ckd.isLabelValue" -}}
{{- if regexMatch "^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$" . -}}true{{- end -}}
{{- end -}}

{{- define "ckd.asLabelValue" -}}
expected a label value: at most 63 letters, digits, -, _ and ., with a letter or digit at either end
{{- end -}}

{{/* Of a label or annotation, such as team or example.com/team. */}}
{{- define "ckd.isKey" -}}
{{- $prefix := splitList "/" . | initial | join "/" -}}
{{- $name := splitList "/" . | last -}}
{{- if and $name (include "ckd.isLabelValue" $name) (or (eq $name .) (include "ckd.isSubdomain" $prefix)) -}}true{{- end -}}
{{- end -}}

{{- define "ckd.asKey" -}}
expected a key such as team or example.com/team: a label value, and before a / a DNS-1123 subdomain
{{- end -}}

{{/* ckd.quantity: 250m, 1.5 or 64Mi as a number; nothing for what is none of these. */}}
{{- define "ckd.quantity" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := ternary . (toJson .) (kindIs "string" .) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- if and $number (hasKey $units $unit) -}}
{{- mulf (float64 $number) (get $units $unit) | toJson -}}
{{- end -}}
{{- end -}}
