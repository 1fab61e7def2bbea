// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atmostone keeps two pods of one name from running at once on a machine, also where the API has forgotten the first.
//
// Kubernetes promises that of a StatefulSet's pods no two bear the same name at a time, but only for the objects: one that is
// deleted by force, or with a grace of 0, vanishes at once while its processes go on, and the next pod of the name would
// write to the same volume beside them. Here the container runtime asks before each start ([Hook]), and the answer waits.
package atmostone

// Pod is whose container it is. Pods with the same name and different UIDs are one after the other.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Container is a container that was allowed to start.
type Container struct {
	ID  string
	Pod Pod
}

// InTheWay are those of the containers allowed to start that must have ended before one of the pod may: all of other pods of
// its name, whichever is the older. The pod that has a process keeps the name until the last of them is dead.
func InTheWay(pod Pod, started []Container) []Container {
	var others []Container
	for _, c := range started {
		if c.Pod.Namespace == pod.Namespace && c.Pod.Name == pod.Name && c.Pod.UID != pod.UID {
			others = append(others, c)
		}
	}
	return others
}
