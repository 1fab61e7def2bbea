// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is how our kubeconfig files call their one cluster, user and context.
const clusterName = "ordinal"

// WriteKubeconfig writes a self-contained kubeconfig for one user of one server.
func WriteKubeconfig(file, server string, authority *Authority, client Pair) error {
	const name = clusterName
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority.PEM()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Certificate, ClientKeyData: client.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return writeSecret(file, content)
}

// IsOurs tells whether a kubeconfig file was written by WriteKubeconfig, and so may be replaced.
func IsOurs(file string) (bool, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	_, ours := config.Clusters[clusterName]
	return ours && len(config.Clusters) == 1, nil
}
