{{- define "tidegate.name" -}}
{{ printf "%s-tidegate-%s" (.Release.Name | trunc 30 | trimSuffix "-") .part }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tidegate.account" -}}
{{ .program.serviceAccount.name | default (include "tidegate.name" .) }}
{{- end }}

{{- define "tidegate.image" -}}
{{ printf "%s:%s" .program.image.repository (.program.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* The settings file: what both programs share, then the program's own. */}}
{{- define "tidegate.settings" -}}
bootstrap_servers = {{ .Values.stream.bootstrapServers | toJson }}
registry_url = {{ .Values.stream.registryUrl | toJson }}
prefix = {{ .Values.stream.prefix | toJson }}
{{- with .Values.stream.topicTemplate }}
topic_template = {{ . | toJson }}
{{- end }}
{{- range $name, $value := .program.settings }}
{{ $name }} = {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- with .Values.stream.kafkaOptions }}

[kafka_options]
{{- range $name, $value := . }}
{{ $name | quote }} = {{ $value | toString | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 5
  failureThreshold: 36
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 15
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "tidegate.hardened" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "tidegate.pod" -}}
serviceAccountName: {{ include "tidegate.account" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .program.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
