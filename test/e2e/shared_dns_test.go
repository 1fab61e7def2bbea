// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// prompt is how long a name may lag behind the readiness of its pod.
const prompt = time.Second

// Item 2: names of peers, asked for by a person in a pod.
func TestPeerNames(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	ip := map[string]string{}
	for name, pod := range s.pods() {
		ip[name] = pod.Status.PodIP
	}

	shell := s.terminal("run", "-it", "--image="+busyboxImage, "dns-test", "--restart=Never", "--rm")
	shell.expect("try pressing enter")
	asked := 0
	ask := func(line string) string {
		asked++
		before := len(shell.said())
		shell.send(fmt.Sprintf("%s; echo answer-%d-$?", line, asked))
		shell.expect(fmt.Sprintf(`answer-%d-\d`, asked))
		return shell.said()[before:]
	}
	if got, want := addressesIn(ask("nslookup web-1.web-svc")), []string{ip["web-1"]}; !slices.Equal(got, want) {
		t.Errorf("web-1.web-svc is at %v, want %v", got, want)
	}
	everyone := []string{ip["web-0"], ip["web-1"], ip["web-2"]}
	slices.Sort(everyone)
	if got := addressesIn(ask("nslookup web-svc")); !slices.Equal(got, everyone) {
		t.Errorf("web-svc is at %v, want %v", got, everyone)
	}
	shell.send("exit")
	s.kubectl("wait", "pod/dns-test", "--for=delete", "--timeout="+patience.String())
	shell.expect(`pod "dns-test" deleted`)

	s.asker("")
	domain := "web-svc." + s.name + ".svc.cluster.local"
	for _, question := range []string{"web-svc", "_http._tcp." + domain} {
		answer := s.kubectl("exec", "asker", "--", "nslookup", "-type=srv", question)
		for name := range ip {
			if want := regexp.MustCompile(`\b80\s+` + name + `\.` + regexp.QuoteMeta(domain)); !want.MatchString(answer) {
				t.Errorf("SRV of %s does not list %s:\n%s", question, name, answer)
			}
		}
	}
	for name, address := range ip {
		if answer := s.kubectl("exec", "asker", "--", "nslookup", address); !strings.Contains(answer, name+"."+domain) {
			t.Errorf("PTR of %s is not %s:\n%s", address, name, answer)
		}
	}
	own := s.exec("web-2", "hostname; hostname -f; cat /etc/resolv.conf")
	for _, want := range []string{"web-2\n", "web-2." + domain, s.name + ".svc.cluster.local svc.cluster.local cluster.local"} {
		if !strings.Contains(own, want) {
			t.Errorf("web-2 does not know %q of itself:\n%s", want, own)
		}
	}
	if got := s.addresses("kubernetes.default"); len(got) != 1 || !strings.HasPrefix(got[0], "10.86.") {
		t.Errorf("kubernetes.default is at %v", got)
	}
}

// A pod's name answers within a second after the pod is ready, and is gone within a second when it is not, also if somebody
// has asked too early.
func TestNamesFollowReadiness(t *testing.T) {
	s := onShared(t)
	s.asker(askFor("web-0.web-svc." + s.name + ".svc.cluster.local."))
	story := s.watchPods()
	s.apply(webService())
	s.awaitAnswer(time.Time{}, false)

	s.apply(s.webSet(replicas(1), readyWhen("test -e /usr/share/nginx/html/go")))
	story.await(0, "web-0", created)
	s.eventually(patience, "web-0 runs", func() error {
		if pod := s.pods()["web-0"]; pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
	for range 3 {
		told := story.now()
		s.awaitAnswer(time.Now(), false)
		s.exec("web-0", "touch /usr/share/nginx/html/go")
		turn := story.await(told, "web-0", ready)
		s.checkAnswers(turn, s.awaitAnswer(turn.at, true))

		told = story.now()
		s.exec("web-0", "rm /usr/share/nginx/html/go")
		turn = story.await(told, "web-0", unready)
		s.checkAnswers(turn, s.awaitAnswer(turn.at, false))
	}

	told := story.now()
	s.exec("web-0", "touch /usr/share/nginx/html/go")
	story.await(told, "web-0", ready)
	s.awaitAnswer(time.Now(), true)
	s.kubectl("delete", "sts", "web")
	turn := story.await(told, "web-0", deleting)
	s.checkAnswers(turn, s.awaitAnswer(turn.at, false))
}

// A replaced pod's name never leads to another pod, nor to two; and when the new pod is ready, the old address is gone.
func TestNamesOfReplacedPods(t *testing.T) {
	s := onShared(t)
	s.webOf(3, withoutClaims, parallel)
	var domains []string
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		domains = append(domains, pod+".web-svc."+s.name+".svc.cluster.local.")
	}
	s.asker(askFor(domains...))
	story := s.watchPods()
	random := rand.New(rand.NewPCG(seed(t), 0))
	began := time.Now()
	for range 8 {
		pod, told := fmt.Sprintf("web-%d", random.IntN(3)), story.now()
		s.kubectl("delete", "pod", pod, "--wait=false")
		story.await(told, pod, ready)
	}
	s.awaitAnswer(time.Now(), true)

	answers, err := s.answers(began)
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) < 100 {
		t.Errorf("there are only %d answers", len(answers))
	}
	chapters, _ := story.since(0)
	for _, a := range answers {
		pod, _, _ := strings.Cut(a.name, ".")
		switch current := addressesOf(chapters, pod, a.at); {
		case len(a.addresses) > 1:
			t.Errorf("at %v %s is at %v", a.at, pod, a.addresses)
		case len(a.addresses) == 1 && !slices.Contains(current, a.addresses[0]):
			t.Errorf("at %v %s is at %v, the pod at %v", a.at, pod, a.addresses, current)
		}
	}
}

// addressesOf are the addresses at which the name of a pod may be at a time: that of the last pod of the name that was ready,
// and, as an answer and the watch cross each other, those which became the right one a moment before or after.
func addressesOf(chapters []chapter, pod string, at time.Time) []string {
	const crossing = 200 * time.Millisecond
	var may []string
	for _, c := range chapters {
		if c.pod != pod || c.turn != ready || c.at.After(at.Add(crossing)) {
			continue
		}
		if c.at.Before(at.Add(-crossing)) {
			may = nil
		}
		may = append(may, c.address)
	}
	return may
}

// answer is what the asker was told of a name at one time.
type answer struct {
	at        time.Time
	name      string
	addresses []string
}

func (a answer) found() bool { return len(a.addresses) > 0 }

// askFor is a shell line that asks for names again and again, and tells each answer in one line.
func askFor(names ...string) string {
	return "while :; do for name in " + strings.Join(names, " ") +
		"; do echo $name $(nslookup $name 2>&1 | tr '\\n' '|'); sleep 0.05; done; done"
}

// answers are what the asker was told from a time on; the runtime stamps the lines.
func (s *space) answers(from time.Time) ([]answer, error) {
	out := s.try("logs", "asker", "--timestamps", "--since-time="+from.Add(-time.Second).Format(time.RFC3339))
	if err := out.err(); err != nil {
		return nil, err
	}
	var told []answer
	for line := range strings.Lines(out.stdout) {
		stamp, text, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			return nil, err
		}
		name, text, _ := strings.Cut(text, " ")
		if at.After(from) {
			told = append(told, answer{at: at, name: name, addresses: addressesIn(strings.ReplaceAll(text, "|", "\n"))})
		}
	}
	return told, nil
}

// awaitAnswer waits for the first answer of a kind after a time.
func (s *space) awaitAnswer(after time.Time, found bool) answer {
	s.Helper()
	var first answer
	s.eventually(patience, fmt.Sprintf("the name is found: %t", found), func() error {
		told, err := s.answers(after)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(told, func(a answer) bool { return a.found() == found })
		if i < 0 {
			return fmt.Errorf("%d answers say the opposite", len(told))
		}
		first = told[i]
		return nil
	})
	return first
}

// checkAnswers checks that the first right answer came promptly after a turn of the pod, and none after it was wrong again.
func (s *space) checkAnswers(turn chapter, first answer) {
	s.Helper()
	lag := first.at.Sub(turn.at)
	s.Logf("%s: first answer that says so after %v", turn, lag.Round(time.Millisecond))
	if lag > prompt {
		s.Errorf("%s, but the first answer that says so came %v later", turn, lag)
	}
	told, err := s.answers(first.at)
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range told {
		if a.found() != first.found() && a.at.Sub(turn.at) > prompt {
			s.Errorf("%s, but an answer %v later denies it", turn, a.at.Sub(turn.at))
		}
	}
}

// addresses are what the asker is told when it asks for a name.
func (s *space) addresses(name string) []string {
	s.Helper()
	return addressesIn(said(s.try("exec", "asker", "--", "nslookup", name)))
}

var addressLine = regexp.MustCompile(`^Address[^:]*:\s+([0-9.]+)(\s|$)`)

// addressesIn are the addresses of the name in what nslookup prints, in order; not that of the server, which it prints first.
func addressesIn(said string) []string {
	var found []string
	_, said, _ = strings.Cut(said, "Name:")
	for line := range strings.Lines(said) {
		if match := addressLine.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			found = append(found, match[1])
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
