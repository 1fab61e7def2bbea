// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func newSet(image string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "set"}}
	set.Annotations = map[string]string{"kubernetes.io/change-cause": "because"}
	set.Spec.Template.Labels = map[string]string{"app": "web"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	return set
}

// The bytes that Kubernetes 1.37.2 records for a template: keys sorted, "$patch" among them, and numbers as float64 writes
// them. test/differential compares with the original; this is here so that a slip is seen at once.
func TestData(t *testing.T) {
	set := newSet("a<b")
	set.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(9007199254740993))}
	data, err := Data(&set.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[` +
		`{"image":"a\u003cb","name":"main","resources":{}}],"securityContext":{"runAsUser":9007199254740992}}}}}`
	if string(data) != want {
		t.Errorf("data is\n%s, want\n%s", data, want)
	}
}

// recorded133 is what Kubernetes 1.33 recorded, with its name: pkg/controller/statefulset/testdata of Kubernetes 1.37.2.
const (
	recorded133 = `{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{"test":"value"},"creationTimestamp":null,` +
		`"labels":{"app":"foo"}},"spec":{"containers":[{"image":"test","imagePullPolicy":"Always","name":"test","resources":{},` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst",` +
		`"restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}}}`
	hash133 = "c77f6d978"
)

func TestHash(t *testing.T) {
	if got := Hash([]byte(recorded133), 0); got != hash133 {
		t.Errorf("hash is %s, want %s", got, hash133)
	}
	seen := map[string]bool{}
	for collisions := range int32(20) {
		seen[Hash([]byte(recorded133), collisions)] = true
	}
	if len(seen) != 20 {
		t.Errorf("20 collision counts give %d hashes", len(seen))
	}
}

func TestName(t *testing.T) {
	if got := Name("web", "abc"); got != "web-abc" {
		t.Errorf("name is %s", got)
	}
	long := strings.Repeat("x", 300)
	if got := Name(long, "abc"); got != long[:223]+"-abc" {
		t.Errorf("name of %d characters is %s", len(long), got)
	}
}

func TestFits(t *testing.T) {
	long := strings.Repeat("x", 230)
	for _, c := range []struct {
		set, name string
		want      bool
	}{
		{"web", "web-6d6896bddc", true},
		{"web", Name("web", "0"), true},
		{long, Name(long, "6d6896bddc"), true},
		{"web", "db-6d6896bddc", false},
		{"web", "web", false},
		{"web", "web-", false},
		{"web", "web-db-6d6896bddc", false},
		{"web-db", "web-6d6896bddc", false},
	} {
		if got := Fits(c.set, c.name); got != c.want {
			t.Errorf("%s fits %s: %t", c.name, c.set, got)
		}
	}
}

func TestNew(t *testing.T) {
	set := newSet("one")
	r, err := New(set, 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	hash := Hash(r.Data.Raw, 0)
	want := metav1.ObjectMeta{
		Name:            "web-" + hash,
		Namespace:       "default",
		Labels:          map[string]string{"app": "web", "controller.kubernetes.io/hash": hash},
		Annotations:     map[string]string{"kubernetes.io/change-cause": "because"},
		OwnerReferences: []metav1.OwnerReference{Owner(set)},
	}
	if !equality.Semantic.DeepEqual(r.ObjectMeta, want) || r.Revision != 7 {
		t.Errorf("revision %d is %+v, want %+v", r.Revision, r.ObjectMeta, want)
	}
	r.Labels["app"], r.Annotations["kubernetes.io/change-cause"] = "changed", "changed"
	if set.Spec.Template.Labels["app"] != "web" || set.Annotations["kubernetes.io/change-cause"] != "because" {
		t.Error("the revision shares maps with the set")
	}
}

func TestOwner(t *testing.T) {
	got := Owner(newSet("one"))
	want := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set", Controller: new(true), BlockOwnerDeletion: new(true),
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("owner is %+v, want %+v", got, want)
	}
}

func TestSorted(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(time.Unix(int64(seconds), 0)) }
	r := func(name string, number int64, created metav1.Time) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created}, Revision: number}
	}
	mixed := []*appsv1.ControllerRevision{r("d", 2, at(1)), r("c", 1, at(9)), r("b", 1, at(5)), r("a", 1, at(5))}
	var names []string
	for _, r := range Sorted(mixed) {
		names = append(names, r.Name)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(names, want) {
		t.Errorf("order is %v, want %v", names, want)
	}
	if mixed[0].Name != "d" {
		t.Error("the list itself was sorted")
	}
}

func TestTemplate(t *testing.T) {
	set := newSet("one")
	set.Spec.Template.Annotations = map[string]string{"old": "kept"}
	r, err := New(set, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	set.Spec.Template = newSet("two").Spec.Template
	set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "new"}}
	tests := map[string]struct {
		data  string
		image string
	}{
		"as recorded":           {string(r.Data.Raw), "one"},
		"a merge":               {`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"three"}]}}}}`, "three"},
		"more than a template":  {`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"main","image":"four"}]}},"replicas":9}}`, "four"},
		"nothing":               {`{}`, "two"},
		"no JSON":               {`{`, ""},
		"no object":             {`[]`, ""},
		"a template of numbers": {`{"spec":{"template":{"$patch":"replace","spec":{"containers":7}}}}`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(test.data)}}
			template, err := Template(set, r)
			if test.image == "" {
				if err == nil {
					t.Errorf("data %s gives %+v", test.data, template)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := template.Spec.Containers[0].Image; got != test.image {
				t.Errorf("image is %s, want %s", got, test.image)
			}
		})
	}
	back, err := Template(set, r)
	if err != nil {
		t.Fatal(err)
	}
	// What the newer template has is not merged in: https://github.com/kubernetes/kubernetes/issues/91674.
	if len(back.Spec.Volumes) != 0 || back.Annotations["old"] != "kept" {
		t.Errorf("the template is %+v", back)
	}
}

// history makes revisions of sets with these images, numbered from 1 on.
func history(t *testing.T, images ...string) []*appsv1.ControllerRevision {
	t.Helper()
	var all []*appsv1.ControllerRevision
	for i, image := range images {
		r, err := New(newSet(image), int64(i+1), 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		images  []string
		now     string
		current string
		want    string
	}{
		"first":                  {nil, "one", "", "now one, then one, Create 1"},
		"unchanged":              {[]string{"one"}, "one", "one", "now one, then one, Keep 2"},
		"changed":                {[]string{"one"}, "two", "one", "now one, then two, Create 2"},
		"changed back":           {[]string{"one", "two"}, "one", "two", "now two, then one, Bump 3"},
		"current is lost":        {[]string{"one", "two"}, "two", "three", "now two, then two, Keep 3"},
		"equal ones, one newest": {[]string{"one", "two", "one"}, "one", "two", "now two, then one, Keep 4"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set := newSet(test.now)
			if test.current != "" {
				set.Status.CurrentRevision = history(t, test.current)[0].Name
			}
			a, err := Resolve(Question{Set: set, Revisions: history(t, test.images...)})
			if err != nil {
				t.Fatal(err)
			}
			change := map[Change]string{Keep: "Keep", Bump: "Bump", Create: "Create"}[a.Change]
			if got := fmt.Sprintf("now %s, then %s, %s %d", image(t, a.Current), image(t, a.Update), change, a.Number); got != test.want {
				t.Errorf("answer is %q, want %q", got, test.want)
			}
		})
	}
}

// What was found for a generation holds until the set has another, is another, or has a newer revision.
func TestResolveKnows(t *testing.T) {
	set, revisions := newSet("two"), history(t, "one", "two")
	set.UID, set.Generation = "set", 2
	first, err := Resolve(Question{Set: set, Revisions: revisions})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Question)
		want   string
		known  bool
	}{
		"the same":              {func(*Question) {}, "two", true},
		"another generation":    {func(q *Question) { q.Set.Generation = 3 }, "three", false},
		"another set":           {func(q *Question) { q.Set.UID = "other" }, "three", false},
		"a newer revision":      {func(q *Question) { q.Revisions = history(t, "one", "two", "four") }, "three", false},
		"the revision was lost": {func(q *Question) { q.Revisions = history(t, "one") }, "three", false},
		"all were lost":         {func(q *Question) { q.Revisions = nil }, "three", false},
	} {
		t.Run(name, func(t *testing.T) {
			// A template that changes within a generation is not looked at again, which shows what was known.
			q := Question{Set: newSet("three"), Revisions: revisions, Found: first.Found}
			q.Set.UID, q.Set.Generation = "set", 2
			tt.change(&q)
			a, err := Resolve(q)
			if err != nil {
				t.Fatal(err)
			}
			if got := image(t, a.Update); got != tt.want || a.Exact != tt.known || (a.Change == Keep) != tt.known {
				t.Errorf("the update revision is %s, exact %t, change %d", got, a.Exact, a.Change)
			}
			if tt.known != (a.Found == first.Found) {
				t.Errorf("found is %v", a.Found)
			}
		})
	}
}

func image(t *testing.T, r *appsv1.ControllerRevision) string {
	t.Helper()
	template, err := Template(newSet(""), r)
	if err != nil {
		t.Fatal(err)
	}
	return template.Spec.Containers[0].Image
}

func TestResolveCountsCollisions(t *testing.T) {
	set := newSet("one")
	first, err := Resolve(Question{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	set.Status.CollisionCount = new(int32(1))
	second, err := Resolve(Question{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if first.Update.Name == second.Update.Name {
		t.Errorf("a collision does not change the name %s", first.Update.Name)
	}
}

// An upgrade of the API server that adds a default, or another way to write the same, restarts nothing:
// https://github.com/kubernetes/kubernetes/issues/134773.
func TestResolveComparesByMeaning(t *testing.T) {
	set := newSet("test")
	set.Spec.Template = corev1.PodTemplateSpec{}
	if err := json.Unmarshal([]byte(recorded133), &struct{ Spec *appsv1.StatefulSetSpec }{&set.Spec}); err != nil {
		t.Fatal(err)
	}
	old := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + hash133},
		Data:       runtime.RawExtension{Raw: []byte(recorded133)},
		Revision:   4,
	}
	defaulted := set.DeepCopy()
	defaulted.Spec.Template.Spec.EnableServiceLinks = new(true)
	defaulter := func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.EnableServiceLinks = new(true) }

	tests := map[string]struct {
		question Question
		want     Change
	}{
		"written otherwise":           {Question{Set: set}, Keep},
		"written otherwise, by bytes": {Question{Set: set, Bytewise: true}, Create},
		"with a new default":          {Question{Set: defaulted, Defaulter: defaulter}, Keep},
		"without that default":        {Question{Set: defaulted}, Create},
		"another template":            {Question{Set: newSet("other"), Defaulter: defaulter}, Create},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.question.Revisions = []*appsv1.ControllerRevision{old}
			a, err := Resolve(test.question)
			if err != nil {
				t.Fatal(err)
			}
			if a.Change != test.want || (a.Change == Keep) != (a.Update == old) {
				t.Errorf("change is %d with %s, want %d", a.Change, a.Update.Name, test.want)
			}
		})
	}
}

func TestResolveWithUnreadableHistory(t *testing.T) {
	bad := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte("{")}, Revision: 3}
	a, err := Resolve(Question{Set: newSet("one"), Revisions: []*appsv1.ControllerRevision{bad}})
	if err != nil {
		t.Fatal(err)
	}
	if a.Change != Create || a.Update.Revision != 4 {
		t.Errorf("change is %d to number %d", a.Change, a.Update.Revision)
	}
}

func TestTrim(t *testing.T) {
	all := history(t, "one", "two", "three", "four")
	live := map[string]bool{all[1].Name: true}
	tests := map[int32][]string{
		-1: nil,
		0:  {all[0].Name, all[2].Name, all[3].Name},
		1:  {all[0].Name, all[2].Name},
		2:  {all[0].Name},
		3:  nil,
		10: nil,
	}
	for limit, want := range tests {
		var got []string
		for _, r := range Trim(all, live, limit) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with limit %d go %v, want %v", limit, got, want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add([]byte(recorded133))
	f.Add([]byte(`{"spec":{"template":{"$patch":"replace"}}}`))
	f.Add([]byte(`{"spec":{"template":{"$patch":"delete"}}}`))
	f.Add([]byte(`{"spec":{"$patch":"replace"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set := newSet("one")
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}
		template, err := Template(set, r)
		if err == nil && template == nil {
			t.Error("neither a template nor an error")
		}
		if _, err := Resolve(Question{Set: set, Revisions: []*appsv1.ControllerRevision{r}}); err != nil {
			t.Errorf("the set cannot be resolved: %v", err)
		}
	})
}
