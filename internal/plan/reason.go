// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

// Reason tells why an action is taken or why nothing is done for now.
type Reason string

// Reasons for actions.
const (
	// ReasonMatches is why an object without an owner is adopted.
	ReasonMatches Reason = "Matches"
	// ReasonNoMatch is why a pod is released.
	ReasonNoMatch Reason = "NoMatch"
	// ReasonNewTemplate is why a revision is created.
	ReasonNewTemplate Reason = "NewTemplate"
	// ReasonOldTemplate is why an old revision gets the highest number.
	ReasonOldTemplate Reason = "OldTemplate"
	// ReasonHistoryLimit is why a revision is deleted.
	ReasonHistoryLimit Reason = "HistoryLimit"
	// ReasonNoPod is why a pod is created.
	ReasonNoPod Reason = "NoPod"
	// ReasonNoClaim is why a claim is created.
	ReasonNoClaim Reason = "NoClaim"
	// ReasonRetention is why a claim gets other owners.
	ReasonRetention Reason = "Retention"
	// ReasonIdentity is why a pod is labelled anew.
	ReasonIdentity Reason = "Identity"
	// ReasonFailed is why a pod that failed is deleted.
	ReasonFailed Reason = "Failed"
	// ReasonSucceeded is why a pod that ended is deleted.
	ReasonSucceeded Reason = "Succeeded"
	// ReasonScaledDown is why a pod outside the set's range is deleted.
	ReasonScaledDown Reason = "ScaledDown"
	// ReasonOutdated is why a pod of another revision is deleted.
	ReasonOutdated Reason = "Outdated"
	// ReasonOutdatedBroken is why a pod of another revision is deleted although the update's budget is spent: it serves
	// nobody.
	ReasonOutdatedBroken Reason = "OutdatedBroken"
	// ReasonRecreate is why the Recreate strategy deletes a pod.
	ReasonRecreate Reason = "Recreate"
	// ReasonStuck is why a pod is deleted that is not ready and has a revision that its ordinal should not have.
	ReasonStuck Reason = "Stuck"
	// ReasonStop is why a pod is told that it will be removed.
	ReasonStop Reason = "Stop"
	// ReasonStay is why a pod is told that it will not be removed after all.
	ReasonStay Reason = "Stay"
)

// Reasons for waits.
const (
	// WaitSetTerminating means that the set is being deleted, so that nothing is changed any more.
	WaitSetTerminating Reason = "SetTerminating"
	// WaitBadSelector means that the set's selector cannot be read.
	WaitBadSelector Reason = "BadSelector"
	// WaitBadTemplate means that the set's template cannot be recorded.
	WaitBadTemplate Reason = "BadTemplate"
	// WaitBadRevision means that a revision from which a pod has to be made holds no template.
	WaitBadRevision Reason = "BadRevision"
	// WaitRecreateDisabled means that the set uses the strategy Recreate, which is switched off.
	WaitRecreateDisabled Reason = "RecreateDisabled"
	// WaitStarting means that a pod was created and does not run yet.
	WaitStarting Reason = "Starting"
	// WaitNotReady means that a pod runs and is not ready.
	WaitNotReady Reason = "NotReady"
	// WaitNotAvailable means that a pod is ready, but not for long enough.
	WaitNotAvailable Reason = "NotAvailable"
	// WaitTerminating means that a pod is going and has to be gone first.
	WaitTerminating Reason = "Terminating"
	// WaitFinished means that a pod ended and is being replaced.
	WaitFinished Reason = "Finished"
	// WaitBackoff means that a pod keeps failing and is not made again before some time.
	WaitBackoff Reason = "Backoff"
	// WaitNameTaken means that a pod of somebody else has the name of a pod to be created.
	WaitNameTaken Reason = "NameTaken"
	// WaitClaimTerminating means that a claim is going and has to be gone first.
	WaitClaimTerminating Reason = "ClaimTerminating"
	// WaitClaimStale means that a claim will go with the former pod of the same name.
	WaitClaimStale Reason = "ClaimStale"
	// WaitClaimConflict means that another controller owns a claim, so that the retention policy is not applied to it.
	WaitClaimConflict Reason = "ClaimConflict"
	// WaitVolumes means that a pod does not mount the claims of the set, and will from its next creation on.
	WaitVolumes Reason = "Volumes"
	// WaitBudget means that as many pods as may be unavailable are unavailable.
	WaitBudget Reason = "Budget"
	// WaitPartition means that pods of another revision are kept by the partition.
	WaitPartition Reason = "Partition"
	// WaitOnDelete means that pods of another revision are kept until somebody deletes them.
	WaitOnDelete Reason = "OnDelete"
	// WaitClaimShared means that a claim belongs to another set whose claims have the same names.
	WaitClaimShared Reason = "ClaimShared"
	// WaitBadName means that no pod can have the name that follows from the set's.
	WaitBadName Reason = "BadName"
	// WaitPaused means that the policy pauses the rollout.
	WaitPaused Reason = "Paused"
	// WaitBatch means that the rollout goes in batches, and the next does not begin yet.
	WaitBatch Reason = "Batch"
	// WaitDeadline means that the rollout made no progress for too long and is left as it is.
	WaitDeadline Reason = "Deadline"
	// WaitRolledBack means that the rollout failed, and the template is not tried again until it changes.
	WaitRolledBack Reason = "RolledBack"
	// WaitPolicyConflict means that the set has two policies, or one that cannot be read.
	WaitPolicyConflict Reason = "PolicyConflict"
	// WaitLeader means that a pod leads, so that others are replaced before it.
	WaitLeader Reason = "Leader"
	// WaitDisruption means that a PodDisruptionBudget forbids an eviction.
	WaitDisruption Reason = "Disruption"
	// WaitDraining means that a pod was told that it will be scaled away, and has time to prepare for it.
	WaitDraining Reason = "Draining"
)
