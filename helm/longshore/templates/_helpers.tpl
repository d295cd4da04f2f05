{{- define "longshore.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "longshore.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "longshore.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "longshore.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "longshore.selectorLabels" -}}
app.kubernetes.io/name: {{ include "longshore.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "longshore.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The chart's labels and commonLabels, and those of one object, which override them: (list . labels). */}}
{{- define "longshore.labelsWith" -}}
{{- $top := index . 0 -}}
{{- $labels := mergeOverwrite (fromYaml (include "longshore.chartLabels" $top)) (deepCopy (default dict $top.Values.commonLabels)) -}}
{{- $labels = mergeOverwrite $labels (fromYaml (include "longshore.selectorLabels" $top)) (deepCopy (default dict (index . 1))) -}}
{{- toYaml $labels }}
{{- end }}

{{- define "longshore.labels" -}}
{{- include "longshore.labelsWith" (list . dict) }}
{{- end }}

{{- define "longshore.podLabels" -}}
{{- range $name, $value := fromYaml (include "longshore.selectorLabels" .) }}
{{- if ne (default $value (get (default dict $.Values.podLabels) $name)) $value }}{{ fail (printf "podLabels.%s is not %s, by which the Service selects the pods; remove it" $name $value) }}{{ end }}
{{- end }}
{{- include "longshore.labelsWith" (list . .Values.podLabels) }}
{{- end }}

{{- define "longshore.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "longshore.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "longshore.image" -}}
{{- $name := .Values.image.repository -}}
{{- if .Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .Values.image.registry) $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if .Values.image.variant }}{{ $tag = printf "%s-%s" $tag .Values.image.variant }}{{ end -}}
{{ $name }}:{{ $tag }}
{{- end -}}
{{- end }}

{{- define "longshore.sealSecretName" -}}
{{- default (printf "%s-seal" (include "longshore.fullname" .)) .Values.seal.existingSecret }}
{{- end }}

{{/* The file that the server reads: what the values say, the listeners of this chart, and the time it has to stop. */}}
{{- define "longshore.config" -}}
{{- $http := dict "port" (int .Values.port) -}}
{{- if .Values.admin.enabled }}
{{- if eq (int .Values.admin.port) (int .Values.port) }}{{ fail "admin.port and port are the same; the admin listener needs a port of its own" }}{{ end -}}
{{- $_ := set $http "admin" (dict "port" (int .Values.admin.port)) }}
{{- end -}}
{{- $grace := required "terminationGracePeriodSeconds is needed; 30 is the default" .Values.terminationGracePeriodSeconds -}}
{{- $drain := dict "drain" (dict "grace_seconds" (int $grace)) -}}
{{- $own := ((.Values.config).http).port -}}
{{- if and $own (ne (int $own) (int .Values.port)) }}{{ fail (printf "config.http.port is %v, and port %d, which the Service and the probes use: remove the former, and set port" $own (int .Values.port)) }}{{ end -}}
{{- $config := mergeOverwrite $drain (deepCopy (default dict .Values.config)) (dict "http" $http) -}}
{{- if gt (int ($config.drain).grace_seconds) (int $grace) }}{{ fail (printf "config.drain.grace_seconds is %d, and terminationGracePeriodSeconds %d: Kubernetes would kill the server while calls run; raise the latter" (int $config.drain.grace_seconds) (int $grace)) }}{{ end -}}
{{- if eq (toString $config.transport) "stdio" }}{{ fail "config.transport is stdio, but pods serve HTTP; remove it" }}{{ end -}}
{{- $host := toString ($config.http).host -}}
{{- if or (hasPrefix "127." $host) (has (lower $host) (list "localhost" "::1" "0:0:0:0:0:0:0:1")) }}{{ fail (printf "config.http.host is %s, which the Service and the probes cannot reach; remove it" $host) }}{{ end -}}
{{- if ($config.http).unix_socket }}{{ fail "config.http.unix_socket excludes the port that the Service and the probes use; remove it" }}{{ end -}}
{{- toYaml $config -}}
{{- end }}

{{/* Whether the public port speaks TLS by itself. */}}
{{- define "longshore.tls" -}}
{{- if (((.Values.config).http).tls).certificate }}true{{ end }}
{{- end }}

{{/* Where probes go: the admin port is plain whatever clients have to speak and show. */}}
{{- define "longshore.probe" -}}
{{- if and (include "longshore.tls" .) .Values.admin.enabled -}}
port: metrics
{{- else if include "longshore.tls" . -}}
{{- with .Values.config.http.tls }}{{ if and .client_ca (not .client_optional) }}{{ fail "config.http.tls.client_ca needs admin.enabled: the probes have no client certificate" }}{{ end }}{{ end -}}
port: http
scheme: HTTPS
{{- else -}}
port: http
{{- end }}
{{- end }}

{{/* What a monitor of the Prometheus operator says of its endpoint. */}}
{{- define "longshore.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* More than one server, now or later. */}}
{{- define "longshore.many" -}}
{{- if or .Values.autoscaling.enabled .Values.keda.enabled (gt (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}
