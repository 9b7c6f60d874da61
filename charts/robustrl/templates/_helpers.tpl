{{- define "robustrl.labels" -}}
app.kubernetes.io/name: robustrl-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
{{- define "robustrl.selector" -}}
app.kubernetes.io/name: robustrl-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "robustrl.nodeAgentSelector" -}}
app.kubernetes.io/name: robustrl-node-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "robustrl.nodeAgentLabels" -}}
{{ include "robustrl.nodeAgentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
{{- define "robustrl.jobRules" -}}
- apiGroups: [robustrl.dev]
  # Deleted only at the end of spec.ttlSecondsAfterFinished.
  resources: [rljobs]
  verbs: [get, list, watch, delete]
- apiGroups: [robustrl.dev]
  resources: [rljobs/status]
  verbs: [get, patch, update]
- apiGroups: [robustrl.dev]
  # Needed to name an RLJob as a blocking owner of its pods.
  resources: [rljobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  # A drain as `robustrl inject trainer-drain` makes it: of the job's own pod, under its disruption budget.
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  # The control endpoint's CA, where job pods mount it from; no other ConfigMap is read or changed.
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [robustrl-ca]
  verbs: [get, patch]
{{- end -}}
