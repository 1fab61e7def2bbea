{{/*
Copyright The Ordinal Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/* At most 55 characters, so that what is put behind it leaves the name of a Service at 63. */}}
{{- define "ordinal.name" -}}
{{- .Values.nameOverride | default (printf "%s-controller" (.Release.Name | trunc 44 | trimSuffix "-")) -}}
{{- end -}}

{{- define "ordinal.selector" -}}
app.kubernetes.io/name: ordinal-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ordinal.labels" -}}
{{ include "ordinal.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "ordinal.account" -}}
{{- .Values.serviceAccount.name | default (include "ordinal.name" .) -}}
{{- end -}}

{{- define "ordinal.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: what the user has set, and where health and metrics are served. */}}
{{- define "ordinal.config" -}}
{{- $own := dict "apiVersion" "config.ordinal.dev/v1alpha1" "kind" "ControllerConfiguration" "health" (dict "bindAddress" ":8081") -}}
{{- with .Values.metrics -}}
{{- if .enabled -}}
{{- $metrics := dict "bindAddress" (printf ":%d" (int .port)) -}}
{{- if .certificateSecret -}}
{{- $metrics = merge $metrics (dict "certFile" "/etc/ordinal/tls/tls.crt" "keyFile" "/etc/ordinal/tls/tls.key") -}}
{{- end -}}
{{- $own = set $own "metrics" $metrics -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $own) -}}
{{- end -}}

{{- define "ordinal.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "ordinal.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
