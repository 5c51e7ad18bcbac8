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
{{- with .program.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A value in TOML. Helm reads whole numbers of a file as floats, and TOML has no JSON objects and no null. */}}
{{- define "tidegate.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "tidegate.toml" $name) (include "tidegate.toml" $value)) -}}
{{- end -}}
{{- end -}}
{ {{- if $pairs }} {{ join ", " $pairs }} {{ end -}} }
{{- else if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . -}}
{{- $values = append $values (include "tidegate.toml" .) -}}
{{- end -}}
[{{ join ", " $values }}]
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . | replace "\x7f" "\\u007f" }}
{{- end -}}
{{- end }}

{{/* The settings file: what both programs share, over it the program's own. */}}
{{- define "tidegate.settings" -}}
{{- $stream := .Values.stream -}}
{{- $all := dict "bootstrap_servers" $stream.bootstrapServers "registry_url" $stream.registryUrl "prefix" $stream.prefix -}}
{{- with $stream.topicTemplate }}{{ $_ := set $all "topic_template" . }}{{ end -}}
{{- $options := dict -}}
{{- range $from := list $stream.kafkaOptions .program.settings.kafka_options -}}
{{- range $name, $value := $from }}{{ $_ := set $options $name $value }}{{ end -}}
{{- end -}}
{{- range $name, $value := .program.settings }}{{ $_ := set $all $name $value }}{{ end -}}
{{- if $options }}{{ $_ := set $all "kafka_options" $options }}{{ end -}}
{{- $lines := list -}}
{{- range $name, $value := $all -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $lines = append $lines (printf "%s = %s" $name (include "tidegate.toml" $value)) -}}
{{- end -}}
{{- end -}}
{{ join "\n" $lines }}
{{- end }}

{{- define "tidegate.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "tidegate.name" . }}
  labels: {{- include "tidegate.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "tidegate.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if .Values.networkPolicy.egress }}, Egress{{ end }}]
  ingress:
    # The kubelet's probes are let through in any case.
    - ports:
        - {protocol: TCP, port: metrics}
      {{- with .Values.networkPolicy.metricsFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with .Values.networkPolicy.ingress }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.networkPolicy.egress }}
  egress: {{- toYaml . | nindent 4 }}
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
# Also of an account that the chart has not made: only Spark on Kubernetes speaks to its API.
automountServiceAccountToken: {{ .program.serviceAccount.automountToken }}
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
