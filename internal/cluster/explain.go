// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// explain adds to the error of a failed start what to do about it.
func (c *Cluster) explain(err error) error {
	restore := fmt.Sprintf("restore it from a backup, or start anew and lose all data with: ordinal down --data-dir %s --purge", c.data)
	if damaged, ok := errors.AsType[*pki.DamagedError](err); ok {
		return fmt.Errorf("%w; %s", damaged, restore)
	}
	if exit, ok := errors.AsType[*supervise.ExitError](err); ok && exit.Name == "etcd" {
		return fmt.Errorf("the datastore in %s cannot be used (%s; log: %s); %s", c.data.Path("etcd"), exit.Reason, exit.LogFile, restore)
	}
	return err
}
