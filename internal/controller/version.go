// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// oldestMinor and newestMinor are the versions of Kubernetes, 1.34 to 1.37, that this was tried with. Others are worked with too: what
// an older one does not have, it does not send, and what a newer one has beside it is left alone.
const oldestMinor, newestMinor = 34, 37

// tellVersion logs which version the API server has.
func tellVersion(ctx context.Context, client kubernetes.Interface) {
	rest := client.Discovery().RESTClient()
	if rest == nil {
		return
	}
	var info apiversion.Info
	body, err := rest.Get().AbsPath("/version").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, &info)
	}
	log := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Info("The version of the API server is not known", "err", err)
	case !isTried(info.Major, info.Minor):
		log.Info("The API server has a version that this controller was not tried with", "version", info.GitVersion,
			"oldest", "1."+strconv.Itoa(oldestMinor), "newest", "1."+strconv.Itoa(newestMinor))
	default:
		log.Info("Found the API server", "version", info.GitVersion)
	}
}

// isTried tells if a version was tried. Some distributions append a plus to the minor one.
func isTried(major, minor string) bool {
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	return err == nil && major == "1" && oldestMinor <= n && n <= newestMinor
}
