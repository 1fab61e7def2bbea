// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = metav1.NamespaceDefault
	setLabel  = "set"
	// calmSet is one that nobody changes: a fault must not disturb its pods.
	calmSet  = "calm"
	replicas = 3
)

// kind is a set of the walk, and how its pods behave.
type kind struct {
	name   string
	policy appsv1.PodManagementPolicyType
	grace  int64
	atEnd  string
}

// kinds are in order and in parallel; their pods end when asked, ignore it until they are killed, and have no time to end.
func kinds() []kind {
	return []kind{
		{calmSet, appsv1.OrderedReadyPodManagement, 5, "exit 0"},
		{"ordered", appsv1.OrderedReadyPodManagement, 5, "exit 0"},
		{"deaf", appsv1.ParallelPodManagement, 1, ""},
		{"graceless", appsv1.ParallelPodManagement, 0, ""},
	}
}

// walk changes sets all the time, and knows what has to be true of them after that.
type walk struct {
	*cluster
	kinds []kind
	// hasProcesses tells that the pods are more than objects: they write into volumes.
	hasProcesses bool
	random       *rand.Rand
	stop         func()

	mu sync.Mutex
	// turn numbers the templates.
	turn int
	done map[string]int
	// claims are those that were ever seen: their UIDs by their names.
	claims map[string]types.UID
	// lines is how much of each volume was there when it was looked at last.
	lines map[string]int
	calm  map[string]string
}

// newWalk makes the sets.
func newWalk(c *cluster, seed uint64, hasProcesses bool) *walk {
	c.Helper()
	w := &walk{
		cluster: c, kinds: kinds(), hasProcesses: hasProcesses, random: rand.New(rand.NewPCG(seed, 1)), stop: func() {},
		done: map[string]int{}, claims: map[string]types.UID{}, lines: map[string]int{},
	}
	for _, k := range w.kinds {
		if _, err := c.client.AppsV1().StatefulSets(namespace).Create(c.Context(), w.set(k), metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
	w.settle(patience)
	w.calm = w.lives()
	return w
}

// during is the walk for a subtest.
func (w *walk) during(t *testing.T) { w.cluster = w.in(t) }

func (w *walk) set(k kind) *appsv1.StatefulSet {
	labels := map[string]string{setLabel: k.name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: k.name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: k.name, PodManagementPolicy: k.policy,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(k.grace),
					Containers: []corev1.Container{{
						Name: "main", Image: "busybox:1.28.3", ImagePullPolicy: corev1.PullNever,
						Command:      []string{"sh", "-c", beating(k.atEnd)},
						Env:          []corev1.EnvVar{{Name: "TURN", Value: strconv.Itoa(w.turn)}},
						VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
				},
			}},
		},
	}
	if k.name == calmSet {
		set.Spec.Replicas = new(int32(1))
	}
	return set
}

// begin starts to change the sets, some times a second, until settle. The API may fail meanwhile, but not refuse.
func (w *walk) begin() {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			w.step(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(200+w.random.IntN(600)) * time.Millisecond):
			}
		}
	})
	w.stop = func() {
		cancel()
		wg.Wait()
		w.stop = func() {}
	}
}

// step makes one change.
func (w *walk) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	k := w.kinds[1+w.random.IntN(len(w.kinds)-1)]
	name, err := w.change(ctx, k)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		name += ", failed"
	}
	w.done[name]++
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		w.Errorf("%s of %s: %v", name, k.name, err)
	}
}

func (w *walk) change(ctx context.Context, k kind) (string, error) {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	pod := fmt.Sprintf("%s-%d", k.name, w.random.IntN(replicas))
	switch w.random.IntN(16) {
	case 0, 1, 2, 3, 4:
		return "scale", w.patch(ctx, k.name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, w.random.IntN(replicas+1)))
	case 5, 6, 7:
		return "roll", w.roll(ctx, k)
	case 8, 9, 10:
		return "delete pod", notGone(w.client.CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{}))
	case 11, 12, 13:
		return "delete pod by force", notGone(w.client.CoreV1().Pods(namespace).Delete(ctx, pod, now))
	case 14:
		return "delete set", notGone(w.client.AppsV1().StatefulSets(namespace).Delete(ctx, k.name, metav1.DeleteOptions{}))
	default:
		return "make set", w.create(ctx, k)
	}
}

func (w *walk) roll(ctx context.Context, k kind) error {
	w.turn++
	return w.patch(ctx, k.name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"TURN","value":"%d"}]}]}}}}`, w.turn))
}

// patch changes a set; one that is deleted at that time is made anew later.
func (w *walk) patch(ctx context.Context, name, patch string) error {
	_, err := w.client.AppsV1().StatefulSets(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return notGone(err)
}

func (w *walk) create(ctx context.Context, k kind) error {
	_, err := w.client.AppsV1().StatefulSets(namespace).Create(ctx, w.set(k), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func notGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// settle ends the changes, asks each set for all its replicas, and waits until every one is right; then it checks that nothing was
// lost and nothing ran twice.
func (w *walk) settle(within time.Duration) {
	w.Helper()
	w.stop()
	began := time.Now()
	w.eventually(within, "the sets are asked for all their replicas", func() error {
		for _, k := range w.kinds[1:] {
			err := errors.Join(w.create(w.Context(), k), w.patch(w.Context(), k.name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)))
			if err != nil {
				return err
			}
		}
		return nil
	})
	w.eventually(within, "every set is right", w.right)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Logf("right %.1f s after the last change; changes so far: %v", time.Since(began).Seconds(), w.done)
	w.checkClaims()
	if w.hasProcesses {
		w.checkVolumes()
	}
}

// right is nil when each set, its status and its pods are as its spec says, and there is no other pod.
func (w *walk) right() error {
	pods, err := w.client.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	wanted := 0
	for _, k := range w.kinds {
		set, err := w.client.AppsV1().StatefulSets(namespace).Get(w.Context(), k.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := isRight(set, pods.Items); err != nil {
			return fmt.Errorf("set %s: %w", k.name, err)
		}
		wanted += int(*set.Spec.Replicas)
	}
	if len(pods.Items) != wanted {
		return fmt.Errorf("there are %d pods, not %d", len(pods.Items), wanted)
	}
	return nil
}

func isRight(set *appsv1.StatefulSet, pods []corev1.Pod) error {
	n, s := *set.Spec.Replicas, set.Status
	if set.DeletionTimestamp != nil || s.ObservedGeneration != set.Generation || s.CurrentRevision != s.UpdateRevision ||
		s.Replicas != n || s.ReadyReplicas != n || s.UpdatedReplicas != n || s.CurrentReplicas != n || s.AvailableReplicas != n {
		return fmt.Errorf("generation %d: %+v", set.Generation, s)
	}
	for ordinal := range n {
		name := fmt.Sprintf("%s-%d", set.Name, ordinal)
		at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
		if at < 0 {
			return fmt.Errorf("%s is not there", name)
		}
		pod := &pods[at]
		if pod.DeletionTimestamp != nil || !isReady(pod) || !metav1.IsControlledBy(pod, set) || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.UpdateRevision {
			return fmt.Errorf("%s is not right: %+v, %s", name, pod.ObjectMeta, pod.Status.Phase)
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// checkClaims checks that no claim that was ever there is gone or another.
func (w *walk) checkClaims() {
	w.Helper()
	claims, err := w.client.CoreV1().PersistentVolumeClaims(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	found := map[string]types.UID{}
	for _, claim := range claims.Items {
		found[claim.Name] = claim.UID
		if claim.Status.Phase != corev1.ClaimBound {
			w.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		}
	}
	for name, uid := range w.claims {
		if found[name] != uid {
			w.Errorf("claim %s was %s and is %q", name, uid, found[name])
		}
	}
	w.claims = found
}

// checkVolumes checks what the pods have written, and that they go on writing.
func (w *walk) checkVolumes() {
	w.Helper()
	for name := range w.claims {
		file := w.beatsFile(name)
		lines, processes := 0, 0
		w.eventually(patience, "the pod of claim "+name+" goes on writing, and alone", func() error {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if lines, processes, err = checkBeats(content); err != nil {
				w.Fatalf("volume of claim %s: %v\n%s", name, err, turns(content))
			}
			if lines < w.lines[name]+3 {
				return fmt.Errorf("there are %d lines, and there were %d", lines, w.lines[name])
			}
			return nil
		})
		w.lines[name] = lines
		w.Logf("%s: %d lines of %d processes, one after the other", name, lines, processes)
	}
}

// turns shows who wrote when: the first line of each turn.
func turns(content []byte) string {
	var shown bytes.Buffer
	last := ""
	for _, match := range beat.FindAllSubmatch(content, -1) {
		if writer := string(match[2]); writer != last {
			last = writer
			fmt.Fprintf(&shown, "%s\n", match[0])
		}
	}
	text := shown.String()
	return text[max(0, len(text)-4000):]
}

func (w *walk) beatsFile(claim string) string {
	w.Helper()
	object, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Get(w.Context(), claim, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	volume, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), object.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	source := volume.Spec.PersistentVolumeSource
	switch {
	case source.Local != nil:
		return filepath.Join(source.Local.Path, "beats")
	case source.HostPath != nil:
		return filepath.Join(source.HostPath.Path, "beats")
	}
	w.Fatalf("volume %s is nowhere on this host", volume.Name)
	return ""
}

// lives are the pods of the calm set and what runs in them.
func (w *walk) lives() map[string]string {
	w.Helper()
	pods, err := w.client.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: setLabel + "=" + calmSet})
	if err != nil {
		w.Fatal(err)
	}
	lives := map[string]string{}
	for _, pod := range pods.Items {
		lives[pod.Name] = string(pod.UID)
		for _, c := range pod.Status.ContainerStatuses {
			lives[pod.Name] += " " + c.ContainerID
		}
	}
	return lives
}

// checkCalm checks that the pods of the set that nobody changed are the same, in the same containers.
func (w *walk) checkCalm() {
	w.Helper()
	for name, life := range w.lives() {
		if life != w.calm[name] {
			w.Errorf("%s was disturbed: it was %s and is %s", name, w.calm[name], life)
		}
	}
}
