// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kwok/pkg/apis/internalversion"
)

// The annotations by which a pod, or the template it is made from, says what is to become of it.
const (
	// FateAnnotation is one of the fates. It may be changed while the pod runs.
	FateAnnotation = "ordinal.dev/simulate"
	// DelayAnnotation is how long that takes, as 500ms or 1m30s, in the place of Options.PodDelay.
	DelayAnnotation = "ordinal.dev/simulate-delay"
)

// The fates of a pod.
const (
	// FateReady is what becomes of a pod that says nothing: it runs and is ready.
	FateReady = "ready"
	// FateUnready is a pod whose containers run and never get ready.
	FateUnready = "unready"
	// FateFail is a pod whose containers end with an error, each time they are started.
	FateFail = "fail"
	// FateEvict is a pod that its node ends: its phase is Failed.
	FateEvict = "evict"
	// FatePending is a pod whose containers are never started.
	FatePending = "pending"
)

func fates() []string { return []string{FateReady, FateUnready, FateFail, FateEvict, FatePending} }

// What the stages look at. A stage that has done its work must not match its own result.
const (
	fate      = `.metadata.annotations["` + FateAnnotation + `"]`
	deletion  = `.metadata.deletionTimestamp`
	phase     = `.status.phase`
	readiness = `.status.conditions[]? | select(.type == "Ready") | .status`
	waiting   = `.status.containerStatuses[]?.state.waiting.reason`
	isUnready = `(.status.containerStatuses // []) | any(.state.running != null and .ready == false)`
	owner     = `.metadata.ownerReferences[]?.kind`
)

// stages are the ways of a pod. At most one of them matches at a time.
func stages(delay time.Duration) []*internalversion.Stage {
	s := stager{delay: delay}
	alive := []internalversion.MatchExpression{lacks(deletion), in(phase, "Pending", "Running")}
	lives := func(more ...internalversion.MatchExpression) []internalversion.MatchExpression {
		return slices.Concat(alive, more)
	}
	fine, service, job := in(fate+` // "`+FateReady+`"`, FateReady), notIn(owner, "Job"), in(owner, "Job")
	return []*internalversion.Stage{
		s.stage("delete", []internalversion.MatchExpression{has(deletion)}, internalversion.StageStep{Delete: true}),
		s.delayed("ready", lives(fine, service, notIn(readiness, "True")), status("Running", "True", running(true))),
		s.delayed("complete", lives(fine, job), status("Succeeded", "False", terminated(0))),
		s.delayed("unready", lives(in(fate, FateUnready), notIn(isUnready, "true")), status("Running", "False", running(false))),
		s.delayed("fail", lives(in(fate, FateFail), service, notIn(waiting, "CrashLoopBackOff")),
			event("Warning", "BackOff", "Back-off restarting failed container"), status("Running", "False", crashing)),
		s.delayed("fail-job", lives(in(fate, FateFail), job), status("Failed", "False", terminated(1))),
		s.delayed("evict", lives(in(fate, FateEvict)),
			event("Warning", "Evicted", "The simulated node ended the pod, as its annotation asks"),
			status("Failed", "False", "", "reason: Evicted", "message: ended by the simulated node, as its annotation asks")),
		s.stage("unknown", lives(has(fate), notIn(fate, fates()...)),
			event("Warning", "UnknownFate", "The annotation "+FateAnnotation+" is none of "+strings.Join(fates(), ", "))),
		s.stage("pending", lives(in(fate, FatePending), notIn(waiting, "ContainerCreating")), status("Pending", "False", creating)),
	}
}

// stager makes stages.
type stager struct{ delay time.Duration }

func (s stager) stage(name string, when []internalversion.MatchExpression, steps ...internalversion.StageStep) *internalversion.Stage {
	stage := &internalversion.Stage{}
	stage.Name = name
	stage.Spec.Selector = &internalversion.StageSelector{MatchExpressions: when}
	stage.Spec.Steps = steps
	return stage
}

// delayed is a stage that waits first, as long as the pod says.
func (s stager) delayed(name string, when []internalversion.MatchExpression, steps ...internalversion.StageStep) *internalversion.Stage {
	stage := s.stage(name, when, steps...)
	stage.Spec.Delay = &internalversion.StageDelay{
		DurationMilliseconds: new(s.delay.Milliseconds()),
		DurationFrom: &internalversion.ExpressionFrom{
			JQ: &internalversion.ExpressionJQ{Expression: `.metadata.annotations["` + DelayAnnotation + `"]`},
		},
	}
	return stage
}

func has(key string) internalversion.MatchExpression {
	return match(key, internalversion.SelectorOpExists)
}

func lacks(key string) internalversion.MatchExpression {
	return match(key, internalversion.SelectorOpDoesNotExist)
}

func in(key string, values ...string) internalversion.MatchExpression {
	return match(key, internalversion.SelectorOpIn, values...)
}

func notIn(key string, values ...string) internalversion.MatchExpression {
	return match(key, internalversion.SelectorOpNotIn, values...)
}

func match(key string, by internalversion.SelectorOperator, values ...string) internalversion.MatchExpression {
	return internalversion.MatchExpression{JQ: &internalversion.SelectorJQ{Key: key, Operator: by, Values: values}}
}

func event(kind, reason, message string) internalversion.StageStep {
	return internalversion.StageStep{Event: &internalversion.StageEvent{Type: kind, Reason: reason, Message: message}}
}

// The states of a container, as lines of its status.
const (
	crashing = `
  ready: false
  started: false
  restartCount: 5
  state: {waiting: {reason: CrashLoopBackOff, message: back-off 5m0s restarting failed container}}
  lastState: {terminated: {exitCode: 1, reason: Error, startedAt: {{ $now }}, finishedAt: {{ $now }}}}`
	creating = `
  ready: false
  started: false
  restartCount: 0
  state: {waiting: {reason: ContainerCreating}}`
)

func running(ready bool) string {
	return fmt.Sprintf(`
  ready: %t
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now }}}}`, ready)
}

func terminated(code int) string {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return fmt.Sprintf(`
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: %d, reason: %s, startedAt: {{ $now }}, finishedAt: {{ $now }}}}`, code, reason)
}

// statusTemplate is what a pod's node tells of it. It holds for this one pod only, not for a namesake that follows it.
const statusTemplate = `{{ $now := Now | Quote }}
metadata:
  uid: {{ .metadata.uid | Quote }}
status:
  phase: PHASE
  observedGeneration: {{ .metadata.generation }}
  startTime: {{ or .status.startTime Now | Quote }}
  conditions:
  {{- range list "PodReadyToStartContainers" "Initialized" }}
  - {type: {{ . }}, status: "True", lastTransitionTime: {{ $now }}}
  {{- end }}
  {{- range list "ContainersReady" "Ready" }}
  - {type: {{ . }}, status: "READINESS", lastTransitionTime: {{ $now }}, reason: REASON, message: REMARK}
  {{- end }}
  {{- with PodIP .metadata.uid }}
  podIP: {{ . }}
  podIPs: [{ip: {{ . }}}]
  {{- end }}`

// containersTemplate gives every container the same state. Init containers have done their work, but for those that run along.
const containersTemplate = `
  containerStatuses:
  {{- range .spec.containers }}
  - name: {{ .name }}
    image: {{ .image | Quote }}
    imageID: {{ .image | Quote }}CONTAINER
  {{- end }}
  initContainerStatuses:
  {{- range .spec.initContainers }}
  - name: {{ .name }}
    image: {{ .image | Quote }}
    imageID: {{ .image | Quote }}
    restartCount: 0
    ready: true
    {{- if eq (toString .restartPolicy) "Always" }}
    started: true
    state: {running: {startedAt: {{ $now }}}}
    {{- else }}
    started: false
    state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now }}, finishedAt: {{ $now }}}}
    {{- end }}
  {{- end }}`

// status writes a pod's status: its phase, whether it is ready, the state of its containers, and further lines.
func status(phase, ready, container string, more ...string) internalversion.StageStep {
	text := statusTemplate
	if container != "" {
		text += strings.Replace(containersTemplate, "CONTAINER", strings.ReplaceAll(container, "\n", "\n  "), 1)
	}
	for _, line := range more {
		text += "\n  " + line
	}
	reason, message := `""`, `""`
	if ready != "True" {
		reason, message = "ContainersNotReady", "containers are not ready in the simulation"
	}
	text = strings.NewReplacer("PHASE", phase, "READINESS", ready, "REASON", reason, "REMARK", message).Replace(text)
	return internalversion.StageStep{Patch: &internalversion.StagePatch{
		Subresource: "status", Template: text, Type: new(internalversion.StagePatchTypeStrategicMergePatch),
	}}
}
