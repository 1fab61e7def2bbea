// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// reasonRefused is the reason for waiting for what was refused. Plans know nothing of it: the controller tries again.
const reasonRefused = "FailedCreate"

// waits are all that is waited for: what the plan says, what was refused, and what is wrong with other pods.
func (f *Facts) waits() []Wait {
	refused := f.refused()
	all := slices.Concat(f.planned(refused), refused, f.blocked(), f.halted())
	for _, pod := range f.Plan.Members {
		told := slices.ContainsFunc(all, func(w Wait) bool { return w.Object == "pod "+pod.Name })
		if t := podstate.TroubleOf(pod, f.Snapshot.Now); t != nil && !told {
			w := Wait{Object: "pod " + pod.Name, Reason: t.Reason}
			f.describe(&w, pod)
			all = append(all, w)
		}
	}
	for i := range all {
		if f.isRemoved(all[i].Object) {
			all[i].Wrong = false
			all[i].Rule = ""
			all[i].do("", "")
		}
	}
	slices.SortStableFunc(all, func(a, b Wait) int { return rank(a) - rank(b) })
	return all
}

func rank(w Wait) int {
	if w.Wrong {
		return 0
	}
	return 1
}

// isRemoved tells if the object is a pod that the controller replaces or removes now, so that nobody else has to.
func (f *Facts) isRemoved(object string) bool {
	return slices.ContainsFunc(f.Plan.Actions(), func(a plan.Action) bool {
		d, deletes := a.(plan.DeletePod)
		return deletes && !d.Evict && d.Pod.String() == object
	})
}

// halted is why a rollout goes no further although the plan has not come to it, as a pod holds it up too.
func (f *Facts) halted() []Wait {
	set := plan.Ref{Kind: plan.KindSet, Name: f.Snapshot.Set.Name}
	var p plan.Wait
	switch rules := policy.Of(f.Snapshot.Policies); {
	case f.Plan.Rollout.Phase == v1alpha1.RolloutHeld:
		p = plan.Wait{Reason: plan.WaitDeadline, On: set}
	case f.Plan.Rollout.Phase == v1alpha1.RolloutPaused && rules.Conflict:
		p = plan.Wait{Reason: plan.WaitPolicyConflict, On: set}
	case f.Plan.Rollout.Phase == v1alpha1.RolloutPaused && rules.Paused:
		p = plan.Wait{Reason: plan.WaitPaused, On: set}
	default:
		return nil
	}
	if slices.ContainsFunc(f.Plan.Waits, func(w plan.Wait) bool { return w.Reason == p.Reason }) {
		return nil
	}
	return []Wait{f.explain(p)}
}

// isShown tells if a wait of the plan says something: not so that a pod that is yet to be created is not there, nor that the
// budget is spent by what is done now.
func (f *Facts) isShown(p plan.Wait, refused []Wait) bool {
	switch {
	case p.On.Kind == plan.KindPod:
		return !f.isCreated(p.On.Name) && !isTold(refused, p)
	case p.Reason == plan.WaitBudget:
		return !slices.ContainsFunc(f.Plan.Actions(), func(a plan.Action) bool { _, deletes := a.(plan.DeletePod); return deletes })
	}
	return true
}

// planned are the waits of the plan.
func (f *Facts) planned(refused []Wait) []Wait {
	all := []Wait{}
	for _, p := range f.Plan.Waits {
		if !f.isShown(p, refused) {
			continue
		}
		i := slices.IndexFunc(all, func(w Wait) bool { return w.Object == p.On.String() && w.Reason == string(p.Reason) })
		if i < 0 {
			i = len(all)
			all = append(all, f.explain(p))
		}
		if p.For != "" && p.For != p.On.Name {
			all[i].For = append(all[i].For, p.For)
		}
	}
	return all
}

func isTold(refused []Wait, p plan.Wait) bool {
	return slices.ContainsFunc(refused, func(w Wait) bool { return w.Object == p.On.String() })
}

func (f *Facts) isCreated(pod string) bool {
	return slices.ContainsFunc(f.Plan.Actions(), func(a plan.Action) bool {
		_, creates := a.(plan.CreatePod)
		return creates && a.Target().Name == pod
	})
}

func (f *Facts) explain(p plan.Wait) Wait {
	w := Wait{Object: p.On.String(), Reason: string(p.Reason), Message: plan.Wait{Reason: p.Reason}.Because()}
	if p.Detail != "" {
		w.show(p.Detail)
	}
	if !p.Until.IsZero() {
		w.Until = &metav1.Time{Time: p.Until}
	}
	switch p.On.Kind {
	case plan.KindPod:
		f.explainPod(&w, p)
	case plan.KindClaim:
		f.explainClaim(&w, p)
	case plan.KindSet:
		f.explainSet(&w, p)
	case plan.KindRevision:
		w.Wrong = true
		w.do("to see it", f.Tools.kubectl("get controllerrevision "+p.On.Name+" -o yaml"))
	}
	return w
}

func (f *Facts) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(f.Snapshot.Pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return f.Snapshot.Pods[i]
}

func (f *Facts) explainPod(w *Wait, p plan.Wait) {
	pod := f.pod(p.On.Name)
	switch p.Reason {
	case plan.WaitStarting, plan.WaitNotReady, plan.WaitNotAvailable, plan.WaitTerminating, plan.WaitFinished:
		if pod != nil {
			f.describe(w, pod)
			w.Rule = f.order(pod)
			f.stuckAtOldRevision(w, pod)
		}
	case plan.WaitNameTaken:
		f.explainStranger(w, pod)
	case plan.WaitBackoff:
		w.Wrong = true
		if pod != nil {
			f.describe(w, pod)
		}
	case plan.WaitDisruption:
		if pod != nil {
			f.explainBudgets(w, pod)
		}
	case plan.WaitDraining:
		w.Rule = "The policy's scaling.scaleDown.drainSeconds gives it time to prepare."
	case plan.WaitLeader:
		w.Rule = "The policy's rollout.order LeaderLast replaces all others first."
	default:
		w.Wrong = p.Reason != plan.WaitVolumes
	}
}

// order is the rule by which others wait for a pod.
func (f *Facts) order(pod *corev1.Pod) string {
	if !f.isOrdered() {
		return fmt.Sprintf("Parallel: others do not wait for it, but updates count it (at most %d unavailable).",
			plan.MaxUnavailable(f.Snapshot.Set))
	}
	if podstate.IsTerminating(pod) {
		return "OrderedReady: other pods are made, replaced or removed when it is gone and back."
	}
	return "OrderedReady: no other pod is made, replaced or removed until it is available."
}

// stuckAtOldRevision tells of what Kubernetes leaves to people: a pod that blocks its own repair (kubernetes#67250).
func (f *Facts) stuckAtOldRevision(w *Wait, pod *corev1.Pod) {
	if !f.Snapshot.Options.Strict || !w.Wrong || podstate.IsTerminating(pod) || podstate.Revision(pod) == f.Plan.Revisions.Update {
		return
	}
	w.show("it has an earlier template, and kube-controller-manager replaces it only when it is ready")
	w.do("to let it be made anew, from the template of now", f.Tools.kubectl("delete pod "+pod.Name))
}

func (f *Facts) explainStranger(w *Wait, pod *corev1.Pod) {
	w.Wrong = true
	w.Rule = "Two pods of one name cannot be, and pods of others are never touched."
	if pod == nil {
		return
	}
	w.Message = "has the name of a pod of the set, and is not the set's"
	w.since(pod.CreationTimestamp.Time)
	switch owner := metav1.GetControllerOfNoCopy(pod); {
	case owner != nil && owner.UID == f.Snapshot.Set.UID:
		w.show("the set's selector does not match its labels")
	case owner != nil:
		w.show(fmt.Sprintf("it belongs to %s %s", owner.Kind, owner.Name))
	default:
		w.show("it belongs to nobody, and the set's selector does not match its labels")
	}
	w.do("if nobody needs it", f.Tools.kubectl("delete pod "+pod.Name))
}

func (f *Facts) explainClaim(w *Wait, p plan.Wait) {
	c := f.claim(p.On.Name)
	switch p.Reason {
	case plan.WaitClaimTerminating:
		w.Rule = "A pod is made only with claims that stay."
		w.do("to see what holds it", f.Tools.kubectl("describe pvc "+p.On.Name))
		if c != nil && c.DeletionTimestamp != nil {
			w.since(c.DeletionTimestamp.Time)
			w.Wrong = f.Snapshot.Now.Sub(c.DeletionTimestamp.Time) > podstate.Patience
			w.show(after("held by its finalizers: ", strings.Join(c.Finalizers, ", ")))
		}
	case plan.WaitClaimStale:
		w.Rule = "persistentVolumeClaimRetentionPolicy.whenScaled is Delete: the claim of a pod that was scaled away goes."
	case plan.WaitClaimConflict:
		if c != nil {
			if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
				w.show(fmt.Sprintf("its controller is %s %s", owner.Kind, owner.Name))
			}
		}
	default:
		w.Wrong = true
		w.do("to see whose it is", f.Tools.kubectl("get pvc "+p.On.Name+" -o yaml"))
	}
}

func (f *Facts) explainSet(w *Wait, p plan.Wait) {
	name := f.Snapshot.Set.Name
	switch p.Reason {
	case plan.WaitPartition:
		f.explainPartition(w)
	case plan.WaitOnDelete:
		old := f.count().old
		w.Message = "its pods get a new template only when somebody deletes them: " + strings.Join(old, ", ")
		w.Rule = "updateStrategy.type is OnDelete."
		w.do("to replace them", f.Tools.kubectl("delete pod "+strings.Join(old, " ")))
	case plan.WaitPaused:
		w.Rule = "rollout.paused of " + f.policyNames() + "."
		w.do("to go on", f.Tools.ordinal("rollout resume sts/"+name))
	case plan.WaitBatch:
		w.Rule = "rollout.pauseAfter of " + f.policyNames() + "."
		w.do("to go on now", f.Tools.ordinal("rollout resume sts/"+name))
	case plan.WaitDeadline, plan.WaitRolledBack:
		f.explainFailure(w)
	case plan.WaitBudget:
		w.Rule = fmt.Sprintf("maxUnavailable is %d.", plan.MaxUnavailable(f.Snapshot.Set))
	case plan.WaitPolicyConflict:
		f.explainConflict(w)
	case plan.WaitSetTerminating:
		w.since(f.Snapshot.Set.DeletionTimestamp.Time)
		w.show(after("held by its finalizers: ", strings.Join(f.Snapshot.Set.Finalizers, ", ")))
	default:
		w.Wrong = true
		w.do("to see the set", f.Tools.kubectl("get sts "+name+" -o yaml"))
	}
}

func (f *Facts) explainPartition(w *Wait) {
	partition := int32(0)
	if r := f.Snapshot.Set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		partition = *r.Partition
	}
	w.Message = "keeps pods of an earlier template: " + strings.Join(f.count().old, ", ")
	w.Rule = fmt.Sprintf("updateStrategy.rollingUpdate.partition is %d: pods below it are not updated.", partition)
	w.do("to update them too", f.Tools.kubectl(fmt.Sprintf(`patch sts %s -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'`,
		f.Snapshot.Set.Name)))
}

func (f *Facts) explainFailure(w *Wait) {
	w.Wrong = true
	w.Rule = "rollout.progressDeadlineSeconds and rollout.onDeadline of " + f.policyNames() + "."
	rules := policy.Of(f.Snapshot.Policies)
	if rules.Policy != nil && rules.Policy.Status.FailedTime != nil && w.Reason == string(plan.WaitRolledBack) {
		w.since(rules.Policy.Status.FailedTime.Time)
	}
	if w.Reason == string(plan.WaitDeadline) && !f.Plan.Rollout.Since.IsZero() {
		w.show("no progress for " + f.ago(f.Plan.Rollout.Since))
	}
	w.do("when its cause is gone, try it again", f.Tools.ordinal("rollout retry sts/"+f.Snapshot.Set.Name))
}

func (f *Facts) policyNames() string {
	all := policy.Sorted(f.Snapshot.Policies)
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	if len(names) == 1 {
		return "the policy " + names[0]
	}
	return "the policies " + strings.Join(names, " and ")
}

func (f *Facts) explainConflict(w *Wait) {
	w.Wrong = true
	all := policy.Sorted(f.Snapshot.Policies)
	if len(all) == 1 {
		w.Message = "its policy cannot be read"
		if err := policy.Check(all[0]); err != nil {
			w.show(all[0].Name + ": " + err.Error())
		}
		w.do("to mend it", f.Tools.kubectl("edit "+v1alpha1.Resource+" "+all[0].Name))
		return
	}
	w.Message = "has several policies, so that none is obeyed"
	w.Rule = "Until there is one, nothing is replaced or scaled down: " + f.policyNames() + "."
	if len(all) > 1 {
		w.do("to keep one, such as the oldest", f.Tools.kubectl("delete "+v1alpha1.Resource+" "+all[len(all)-1].Name))
	}
}

// refused are the pods that the plan wants to create, and that the API server was seen to refuse.
func (f *Facts) refused() []Wait {
	var all []Wait
	for _, a := range f.Plan.Actions() {
		c, ok := a.(plan.CreatePod)
		if !ok {
			continue
		}
		text, since, told := f.refusalOf(c.Pod.Name)
		if !told {
			continue
		}
		w := Wait{Object: a.Target().String(), Reason: reasonRefused, Wrong: true, Message: "cannot be created"}
		w.show(text)
		w.Rule = "It is tried again, ever less often."
		w.since(since)
		if strings.Contains(text, "exceeded quota") {
			w.do("to see what the quota allows", f.Tools.kubectl("describe resourcequota"))
		} else {
			w.do("to see all refusals", f.Tools.kubectl("describe sts "+f.Snapshot.Set.Name))
		}
		all = append(all, w)
	}
	return all
}

// refusalOf is why a pod was not created: by its event, or by the set's status if the event is lost.
func (f *Facts) refusalOf(pod string) (text string, since time.Time, told bool) {
	if e := f.refusal(pod); e != nil {
		return fmt.Sprintf("%s (%s)", cause(e.Message), f.times(e)), e.FirstTimestamp.Time, true
	}
	for _, c := range f.Snapshot.Set.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Reason == reasonRefused && c.Type == appsv1.StatefulSetConditionType("Degraded") &&
			names(c.Message, pod) {
			return c.Message, c.LastTransitionTime.Time, true
		}
	}
	return "", time.Time{}, false
}

// blocked are the pods that the plan wants to evict, and whose PodDisruptionBudget forbids that now.
func (f *Facts) blocked() []Wait {
	var all []Wait
	for _, a := range f.Plan.Actions() {
		d, ok := a.(plan.DeletePod)
		if !ok || !d.Evict {
			continue
		}
		pod := f.pod(d.Pod.Name)
		if pod == nil || len(f.budgetsOf(pod)) == 0 {
			continue
		}
		w := Wait{Object: d.Pod.String(), Reason: string(plan.WaitDisruption)}
		f.explainBudgets(&w, pod)
		all = append(all, w)
	}
	return all
}

func (f *Facts) explainBudgets(w *Wait, pod *corev1.Pod) {
	w.Message = "a PodDisruptionBudget forbids its eviction"
	w.Rule = "rollout.disruption of " + f.policyNames() + " is Evict."
	for _, b := range f.budgetsOf(pod) {
		w.show(fmt.Sprintf("budget %s allows no disruption: %d of %d pods are healthy, and %d have to be", b.Name,
			b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Status.DesiredHealthy))
		if b.Status.CurrentHealthy >= b.Status.ExpectedPods {
			w.Wrong = true
			w.show("all are healthy, so it will never allow one")
		}
		w.do("to let it allow one", f.Tools.kubectl("edit pdb "+b.Name))
	}
}

// budgetsOf are the budgets that allow no eviction of the pod now.
func (f *Facts) budgetsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var all []*policyv1.PodDisruptionBudget
	for _, b := range f.Budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Status.DisruptionsAllowed == 0 && selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, b)
		}
	}
	return all
}
