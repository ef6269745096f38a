{{- define "veneer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "veneer.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "veneer.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "veneer.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "veneer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "veneer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "veneer.labels" -}}
{{ include "veneer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "veneer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "veneer.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "veneer.leaseName" -}}
{{- dig "leaderElection" "leaseName" "veneer" .Values.config -}}
{{- end -}}

{{- define "veneer.leaseNamespace" -}}
{{- dig "leaderElection" "namespace" .Release.Namespace .Values.config -}}
{{- end -}}
