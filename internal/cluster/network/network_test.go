// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import "testing"

// saved is what iptables-save prints on a host with a pod of ours, one of another network, and a firewall.
const saved = `*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-5d2f33 - [0:0]
:CNI-other1 - [0:0]
:CNI-DN-5d2f33 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.85.0.7/32 -m comment --comment "name: \"ordinal\" id: \"5d2f33\"" -j CNI-5d2f33
-A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podman\" id: \"other1\"" -j CNI-other1
-A CNI-5d2f33 -d 10.85.0.0/16 -m comment --comment "name: \"ordinal\" id: \"5d2f33\"" -j ACCEPT
-A CNI-other1 -d 10.88.0.0/16 -m comment --comment "name: \"podman\" id: \"other1\"" -j ACCEPT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"ordinal\" id: \"5d2f33\"" -m multiport --dports 9000 -j CNI-DN-5d2f33
-A CNI-DN-5d2f33 -p tcp -m tcp --dport 9000 -j DNAT --to-destination 10.85.0.7:9000
COMMIT
`

const wanted = `*mangle
-F KUBE-KUBELET-CANARY
-X KUBE-KUBELET-CANARY
COMMIT
*nat
-F CNI-5d2f33
-F CNI-DN-5d2f33
-D POSTROUTING -s 10.85.0.7/32 -m comment --comment "name: \"ordinal\" id: \"5d2f33\"" -j CNI-5d2f33
-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"ordinal\" id: \"5d2f33\"" -m multiport --dports 9000 -j CNI-DN-5d2f33
-X CNI-5d2f33
-X CNI-DN-5d2f33
COMMIT
`

func TestRemovalTakesWhatIsOursAndNothingElse(t *testing.T) {
	if got := removal(saved); got != wanted {
		t.Errorf("removal is\n%s\nwant\n%s", got, wanted)
	}
}

func TestRemovalOfNothing(t *testing.T) {
	for _, dump := range []string{"", "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DOCKER\nCOMMIT\n"} {
		if got := removal(dump); got != "" {
			t.Errorf("removal of %q is %q", dump, got)
		}
	}
}
