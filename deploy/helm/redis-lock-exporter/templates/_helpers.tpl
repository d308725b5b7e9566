{{- define "rle.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "rle.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "rle.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rle.selector" -}}
app.kubernetes.io/name: {{ include "rle.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rle.labels" -}}
{{ include "rle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rle.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rle.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rle.image" -}}
{{- with .Values.image -}}
{{- if .registry }}{{ .registry }}/{{ end }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}

{{/* Metadata of the pods of both components. The argument is a dict of root, side (the values of the component) and component. */}}
{{- define "rle.podMetadata" -}}
labels:
  {{- include "rle.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
annotations:
  kubectl.kubernetes.io/default-container: exporter
  {{- if not .side.existingConfigMap }}
  checksum/config: {{ toYaml .side.config | sha256sum }}
  {{- end }}
  {{- with .side.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "rle.podSpec" -}}
serviceAccountName: {{ include "rle.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .side.podSecurityContext | nindent 2 }}
{{- with .side.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .side.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .side.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .side.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Mounts and volumes of both components that come from the values. */}}
{{- define "rle.givenMounts" -}}
{{- if .root.Values.webConfigSecret }}
- {name: web, mountPath: /etc/redis_lock_exporter_web, readOnly: true}
{{- end }}
{{- with .side.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rle.givenVolumes" -}}
{{- with .root.Values.webConfigSecret }}
- name: web
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .side.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rle.container" -}}
name: exporter
image: {{ include "rle.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .side.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: metrics
    containerPort: 9877
securityContext:
  {{- toYaml .root.Values.containerSecurityContext | nindent 2 }}
{{- /* The kubelet has no client certificate and no password. `healthcheck` succeeds even if the server requires HTTPS or a password. */}}
{{- if .root.Values.webConfigSecret }}
startupProbe:
  exec: {command: [/redis_lock_exporter, healthcheck]}
  periodSeconds: 2
  timeoutSeconds: 6
  failureThreshold: 30
livenessProbe:
  exec: {command: [/redis_lock_exporter, healthcheck]}
  periodSeconds: 15
  timeoutSeconds: 6
readinessProbe:
  exec: {command: [/redis_lock_exporter, healthcheck]}
  periodSeconds: 10
  timeoutSeconds: 6
{{- else }}
startupProbe:
  httpGet: {path: /-/healthy, port: metrics}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /-/healthy, port: metrics}
  periodSeconds: 15
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /-/ready, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}
resources:
  {{- toYaml .side.resources | nindent 2 }}
{{- end -}}

{{/* Scrape settings for both kinds of monitor. The argument contains the values of the monitor. */}}
{{- define "rle.scrape" -}}
interval: {{ .interval }}
scheme: {{ .scheme }}
honorLabels: false
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
