// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// archive is one image to be built.
type archive struct {
	file string
	ref  string
	// server gives the files of the server that the image has beside busybox; nil for none.
	server func(packages tree) ([]image.File, error)
	spec   image.Spec
}

func archives() []archive {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	nginx := func(version string) archive {
		return archive{
			file: "nginx-" + version + ".tar", ref: "nginx:" + version, server: nginxFiles,
			spec: image.Spec{
				Cmd: []string{"nginx", "-g", "daemon off;"},
				Env: env,
				// What makes one version another: equal images would have one ID, and a pod's status could name either.
				Labels: map[string]string{"version": version},
			},
		}
	}
	first := nginx("1.16")
	first.file = "nginx.tar"
	return []archive{
		{file: "busybox.tar", ref: "busybox:1.28.3", spec: image.Spec{Cmd: []string{"sh"}, Env: env}},
		first,
		nginx("1.17"),
		{file: "redis.tar", ref: "redis:7.0", server: redisFiles, spec: image.Spec{Cmd: []string{"redis-server"}, Env: env}},
	}
}

const (
	passwd = `root:x:0:0:root:/root:/bin/sh
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`
	group = `root:x:0:
www-data:x:33:
nogroup:x:65534:
`
	nginxConfig = `user www-data;
worker_processes 1;
error_log /dev/stderr notice;
pid /run/nginx.pid;

events {
	worker_connections 256;
}

http {
	include /etc/nginx/mime.types;
	default_type application/octet-stream;
	access_log /dev/stdout;

	server {
		listen 80;
		root /usr/share/nginx/html;
		index index.html;
	}
}
`
)

// baseFiles are in every image.
func baseFiles() []image.File {
	return []image.File{
		link("bin", "usr/bin"),
		link("sbin", "usr/sbin"),
		link("lib", "usr/lib"),
		link("lib64", "usr/lib64"),
		directory("usr/lib", 0o755),
		directory("usr/lib64", 0o755),
		directory("usr/sbin", 0o755),
		directory("root", 0o700),
		directory("run", 0o755),
		link("var/run", "/run"),
		directory("tmp", fs.ModeSticky|0o777),
		text("etc/passwd", passwd),
		text("etc/group", group),
		text("etc/nsswitch.conf", "hosts: files dns\n"),
	}
}

func link(name, target string) image.File {
	return image.File{Path: name, Mode: fs.ModeSymlink | 0o777, Link: target}
}

func directory(name string, mode fs.FileMode) image.File {
	return image.File{Path: name, Mode: fs.ModeDir | mode}
}

func text(name, content string) image.File {
	return image.File{Path: name, Mode: 0o644, Data: []byte(content)}
}

// busyboxFiles are busybox, a link for each of its applets, our nslookup instead of one, and the libraries.
func busyboxFiles(ctx context.Context, packages tree, nslookup []byte) ([]image.File, error) {
	const name = "usr/bin/busybox"
	program, ok := packages[name]
	if !ok {
		return nil, errors.New("the package busybox has no busybox")
	}
	applets, err := appletsOf(ctx, program.Data)
	if err != nil {
		return nil, err
	}
	files := []image.File{program, {Path: "usr/bin/nslookup", Mode: 0o755, Data: nslookup}}
	for _, applet := range applets {
		if applet != "busybox" && applet != "nslookup" {
			files = append(files, link("usr/bin/"+applet, "busybox"))
		}
	}
	libraries, err := packages.librariesOf(program)
	return append(files, libraries...), err
}

// appletsOf asks busybox what it can do.
func appletsOf(ctx context.Context, program []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "busybox-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "busybox")
	if err := os.WriteFile(file, program, 0o700); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, file, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask busybox for its applets: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// nginxFiles are nginx, its libraries, and a configuration that serves /usr/share/nginx/html on port 80 and logs to the container's output.
func nginxFiles(packages tree) ([]image.File, error) {
	files := []image.File{
		text("etc/nginx/nginx.conf", nginxConfig),
		directory("var/lib/nginx", 0o755),
		link("var/log/nginx/access.log", "/dev/stdout"),
		link("var/log/nginx/error.log", "/dev/stderr"),
	}
	for _, name := range []string{"usr/sbin/nginx", "etc/nginx/mime.types", "usr/share/nginx/html/index.html"} {
		f, ok := packages[name]
		if !ok {
			return nil, fmt.Errorf("the nginx packages have no /%s", name)
		}
		files = append(files, f)
	}
	libraries, err := packages.librariesOf(packages["usr/sbin/nginx"])
	return append(files, libraries...), err
}

// redisFiles are redis, its command line, and their libraries. There is no configuration: redis keeps its data in the directory in
// which it is started, and its arguments say the rest.
func redisFiles(packages tree) ([]image.File, error) {
	var files []image.File
	for _, name := range []string{"usr/bin/redis-server", "usr/bin/redis-cli"} {
		chain, err := packages.follow(name)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		libraries, err := packages.librariesOf(chain[len(chain)-1])
		if err != nil {
			return nil, err
		}
		files = union(files, append(chain, libraries...))
	}
	return files, nil
}
