// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/why"
)

// session is a connection to the cluster that the flags of a command name.
type session struct {
	client   kubernetes.Interface
	policies observe.PolicyClient
	// namespace is what the flags name, or else what the kubeconfig does.
	namespace string
	// tools are how the same cluster is reached on the command line.
	tools why.Tools
}

// connector makes a session when a command runs.
type connector func() (session, error)

// addConnection gives a command and those below it the flags of a connection, and what connects by them.
func addConnection(cmd *cobra.Command, shared *globals) connector {
	flags := newConnectionFlags(shared)
	flags.AddFlags(cmd.PersistentFlags())
	return flags.connect
}

// newConnectionFlags makes the flags by which kubectl finds a cluster. Without --kubeconfig and KUBECONFIG, it is this machine's
// cluster if there is one, and else the one that kubectl would take.
func newConnectionFlags(shared *globals) *connectionFlags {
	all := genericclioptions.NewConfigFlags(true)
	// The others are for debugging kubectl, or are better kept in a kubeconfig.
	all.CacheDir, all.CertFile, all.KeyFile, all.BearerToken, all.TLSServerName, all.Insecure = nil, nil, nil, nil, nil, nil
	all.CAFile, all.APIServer, all.Username, all.Password, all.DisableCompression, all.ClusterName = nil, nil, nil, nil, nil, nil
	all.ImpersonateUID, all.ImpersonateUserExtra = nil, nil
	return &connectionFlags{ConfigFlags: all, shared: shared}
}

// connectionFlags are the flags by which a command finds its cluster.
type connectionFlags struct {
	*genericclioptions.ConfigFlags

	shared *globals
}

func (c *connectionFlags) connect() (session, error) {
	tools := c.tools()
	if *c.KubeConfig == "" && os.Getenv(kubeconfigEnv) == "" {
		own, err := c.ownKubeconfig()
		if err != nil {
			return session{}, err
		}
		if own != "" {
			*c.KubeConfig = own
			tools.Kubectl = tools.Ordinal + " kubectl"
		}
	}
	config, err := c.ToRESTConfig()
	if err != nil {
		return session{}, c.explain(err)
	}
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return session{}, c.explain(err)
	}
	s := session{namespace: namespace, tools: tools}
	// A person waits for it, and it asks little.
	config.QPS, config.Burst = 100, 200
	if err := s.makeClients(config); err != nil {
		return session{}, err
	}
	return s, nil
}

func (s *session) makeClients(config *rest.Config) (err error) {
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	s.policies, err = observe.NewPolicyClient(config)
	return err
}

// ownKubeconfig is that of this machine's cluster. It is empty where another is to be taken: kubectl's, if this machine has no
// cluster, or if kubectl runs us as its plugin.
func (c *connectionFlags) ownKubeconfig() (string, error) {
	data := layout.Data(c.shared.dataDir)
	_, err := os.Stat(data.Kubeconfig())
	_, errKubectl := os.Stat(clientcmd.RecommendedHomeFile)
	switch {
	case errKubectl == nil && (err != nil || c.shared.isPlugin):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%w; or name a cluster with --kubeconfig or %s", noCluster(data, err), kubeconfigEnv)
	}
	return data.Kubeconfig(), nil
}

// explain says what to do about a kubeconfig that does not work.
func (c *connectionFlags) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run this with sudo, or name a kubeconfig of yours with --kubeconfig", err)
	case clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("the kubeconfig names no cluster; name another with --kubeconfig or %s", kubeconfigEnv)
	}
	return err
}

// tools are the commands that reach the cluster of the flags.
func (c *connectionFlags) tools() why.Tools {
	t := why.Tools{Kubectl: "kubectl", Ordinal: c.shared.program()}
	for _, flag := range []struct{ name, value string }{
		{"-n", *c.Namespace}, {"--context", *c.Context}, {"--kubeconfig", *c.KubeConfig},
	} {
		if flag.value != "" {
			t.Flags += " " + flag.name + " " + flag.value
		}
	}
	return t
}

// program is how a person calls us.
func (g *globals) program() string {
	name := "ordinal"
	if g.isPlugin {
		name = "kubectl ordinal"
	}
	if g.dataDir != "" && g.dataDir != layout.DefaultDataDir && os.Getenv(dataDirEnv) != g.dataDir {
		name += " --data-dir " + g.dataDir
	}
	return name
}

// pluginName is the name of our binary by which kubectl finds it as its command "ordinal".
const pluginName = "kubectl-ordinal"

// isPlugin tells if a program is called as a command of kubectl.
func isPlugin(program string) bool {
	return filepath.Base(program) == pluginName
}

// setName reads the name of a set from arguments as kubectl takes them: web, sts/web, statefulset/web, statefulsets.apps/web.
func setName(args []string) (string, error) {
	if len(args) == 2 && isSetKind(args[0]) {
		args = []string{args[0] + "/" + args[1]}
	}
	if len(args) != 1 {
		return "", errors.New("name one StatefulSet, such as sts/web")
	}
	kind, name, found := strings.Cut(args[0], "/")
	if !found {
		kind, name = "sts", args[0]
	}
	switch {
	case !isSetKind(kind):
		return "", fmt.Errorf("%q is no StatefulSet; name one, such as sts/web", args[0])
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("%q names no StatefulSet; name one, such as sts/web", args[0])
	}
	return name, nil
}

func isSetKind(kind string) bool {
	return slices.Contains([]string{
		"sts", "statefulset", "statefulsets", "statefulset.apps", "statefulsets.apps", "statefulset.v1.apps", "statefulsets.v1.apps",
	}, strings.ToLower(kind))
}

// explain says more about why a set could not be reached. Errors of other kinds stay as they are.
func (s *session) explain(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case utilnet.IsConnectionRefused(err):
		return fmt.Errorf("the cluster does not answer: %w", err)
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return fmt.Errorf("no permission: %w", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("no StatefulSet %s in namespace %s%s", name, s.namespace, s.nearby(ctx, name))
	}
	return err
}

// maxNear is how many names are offered in the place of one that does not exist.
const maxNear = 5

// nearby tells where else the name is, or which others there are. It is empty when nothing can be told.
func (s *session) nearby(ctx context.Context, name string) string {
	everywhere, err := s.client.AppsV1().StatefulSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err == nil {
		for i := range everywhere.Items {
			if other := &everywhere.Items[i]; other.Name == name {
				return fmt.Sprintf("; there is one in namespace %s (-n %s)", other.Namespace, other.Namespace)
			}
		}
	}
	list, err := s.client.AppsV1().StatefulSets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return offer(name, names)
}

// offer offers those of the names that are like the one that does not exist, or else some.
func offer(name string, names []string) string {
	if len(names) == 0 {
		return ", which has none"
	}
	// It is cobra's notion of names that are alike, as for commands.
	like := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, other := range names {
		like.AddCommand(&cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}})
	}
	if near := like.SuggestionsFor(name); len(near) > 0 {
		return "; did you mean " + strings.Join(near[:min(len(near), maxNear)], " or ")
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxNear {
		more = fmt.Sprintf(" and %d more", len(names)-maxNear)
	}
	return "; it has " + strings.Join(names[:min(len(names), maxNear)], ", ") + more
}
